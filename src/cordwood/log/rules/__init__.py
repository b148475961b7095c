"""Decisions on plain values: what may be appended, when segments roll, expire or are compacted.

Nothing here opens a file, asks the time or starts a thread.
"""
