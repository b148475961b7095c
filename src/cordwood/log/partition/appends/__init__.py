"""The ways into a log, and what an append waits for.

Records of the library (`appending`), batches that clients encoded (`client_batches`), batches of a
leader (`replica_log`) and parts of a publication (`publication_hold`) all go through the batch
writer. Threads that append share a sync (`group_commit`); `promises` says when an append may be
acknowledged. This room must not know topics, nor who sent the batches.
"""
