"""Segments that take the place of others.

A rewritten segment grows in `.cleaned` files next to those that it will replace
(`segment_rewrite`). At each moment the names in the directory say which files count, to the owner
and to everybody else (`segment_files`). What stays as it is becomes a hard link, or a copy
(`file_copy`). This room must not know which records stay, nor an open `Segment`.
"""
