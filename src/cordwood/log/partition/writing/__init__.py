"""The end of the log: batches get their offsets, segments roll, and syncs make them durable.

`BatchWriter` is the one way to write, under the log's lock. `LogSync` holds the lock for two short
moments, not while it waits for the disk. This room must not know where batches come from, who
waits for them, or what readers see.
"""
