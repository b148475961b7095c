"""How much a client may use: the limits of entities, and token buckets."""
