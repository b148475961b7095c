"""Keeping only the newest record of each key: walk, filter, rewrite, and the cleaner."""
