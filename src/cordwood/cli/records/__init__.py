"""Records as text: formats, input lines, positions."""
