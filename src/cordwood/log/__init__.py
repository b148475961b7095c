"""What a partition promises: offsets, order, durability, retention, compaction; topics, the store.

`log` decides and `storage` acts: the modules here that hold rules (`roll_policy`,
`producer_state`, `leader_epochs`, ...) work on plain values and can be read and tested without
a disk. It must not know sockets, event loops or Spark.
"""
