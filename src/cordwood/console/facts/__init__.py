"""What a console knows, and where it gets it: files, a broker, or both."""
