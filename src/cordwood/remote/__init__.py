"""A broker elsewhere, over Kafka's protocol: what the command line asks of one.

A plain client with blocking sockets, for tools and people. It uses our own messages and batches,
so it starts at once and needs no client library. It knows nothing of stores and their files.
"""
