"""The batches of one `.log` file: reading them, getting past damage, and where they end.

`SegmentReader` goes from batch to batch and verifies each before it returns it. At the end of a
file there may be zeros that were written ahead (`zero_tail`), or a batch of which a power cut left
a part (`torn_offset`). The other modules hold what is known of the batches without reading them.
This room must not know indexes: a reader begins where it is told to.
"""
