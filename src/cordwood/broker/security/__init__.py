"""What protects a broker and needs its configuration or threads. It knows no connections."""
