"""Decisions on plain values: what may be appended; when segments roll, expire, are compacted.

Nothing here opens a file, reads the clock or starts a thread.
"""
