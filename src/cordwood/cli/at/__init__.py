"""What ``--at`` names, a directory or a broker, behind one interface."""
