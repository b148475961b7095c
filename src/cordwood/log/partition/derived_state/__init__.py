"""What the batches of a log imply: its producers, its leader epochs, and the files that keep them.

All of it can be made again from the records, so a file that cannot be written delays nobody
(`derived_files`). A snapshot is loaded at start, and the batches behind it complete it. This room
must not know how batches are written or removed; it is told of them.
"""
