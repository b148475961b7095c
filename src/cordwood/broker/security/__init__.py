"""What protects a broker and needs its configuration or threads; it knows no connections."""
