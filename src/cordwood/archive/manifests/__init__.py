"""What an archive contains: segments, their objects and sums, as values and as one object.

A manifest is replaced as a whole, in a cluster by compare-and-set, so that nobody who was deposed
changes it (`manifest_object`). This room must not know how segments are copied or read.
"""
