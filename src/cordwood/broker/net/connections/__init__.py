"""One client's connection, and what all connections share.

A `ClientConnection` receives frames, gives requests to the router and sends the answers in order.
It belongs to the thread of its loop. The registry counts, drains and closes connections; the host
is what is around them. This room must not know how a client came here: it gets a connected socket
and a session.
"""
