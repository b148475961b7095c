"""Keeping the newest record of each key: walk, filter, rewrite, and who runs it when."""
