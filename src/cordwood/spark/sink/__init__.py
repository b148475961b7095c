"""Writing: rows to partitions, staged files, publication."""
