"""Connections that this broker opens to other nodes: controllers, and other brokers.

An `OutboundPeer` is one node: it connects when there is something to say, and again after a
failure. An `OutboundConnection` is one attempt and one life: it greets, authenticates, and matches
answers with requests. Its `OutboundStream` has the socket, and knows bytes and frames only. A
request is an `OutboundCall`, which gets its answer or an error, once, in the loop; nothing is
repeated. This room must not know the connections of clients, and serves no requests.
"""
