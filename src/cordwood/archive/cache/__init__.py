"""What was fetched from archives: files on the local disk, and pieces in memory, within limits.

It says what is here, what is on its way, and what must go. Whatever is here can be fetched again,
so it may be removed at any time, and nothing outlives the process. This room must not know
segments, nor what their readers will want next.
"""
