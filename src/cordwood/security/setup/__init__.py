"""What a first start makes: an authority, a certificate and users, for a server or for a test."""
