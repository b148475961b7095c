"""One module for each command that needs no room of its own."""
