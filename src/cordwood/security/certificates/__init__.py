"""Keys and certificates: reading them, making them, and the principal that one names."""
