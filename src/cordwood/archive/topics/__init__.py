"""One archived topic: the archive of each partition, the object that describes it, restoring it.

A `PartitionArchive` has the manifest and the segments that are read through it. `TopicKeeper`
keeps configuration and groups up to date, `restore` makes a topic of them again. This room must
not know how segments come into the archive, nor which topics a store has.
"""
