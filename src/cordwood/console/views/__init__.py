"""What pages show, computed from facts by pure functions."""
