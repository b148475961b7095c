"""The client of the command line: talks to brokers over Kafka's protocol.

A plain client with blocking sockets. It uses our own messages and batches, so it starts at once and
needs no client library. It knows nothing about stores and their files.
"""
