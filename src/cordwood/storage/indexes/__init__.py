"""The indexes of a segment, one file each: by offset, by time, by key, and aborted transactions.

An index is derived from the log. It is a hint: losing it costs time, never data, and what it says
is checked against the batches. The first, the second and the last are made of entries of a fixed
size (`entry_file`, `entry_index`). This room must not know the segment that an index belongs to,
nor when entries are due.
"""
