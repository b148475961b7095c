"""Logs that are read without being their writer: from files, or from an archive."""
