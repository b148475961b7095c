"""The files beside the segments: checkpoints, the segment manifest, the marks, staged batches.

A checkpoint and the manifest are replaced as a whole, durably; the marks are mapped into memory,
so that other processes see them move. The bytes are those of `format`. This room must not know
segments, nor what follows from a value that it reads.
"""
