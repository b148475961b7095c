"""The memory of frames that do not fit the receive buffer.

A frame borrows memory from one budget for all connections, share by share, as its bytes arrive, so
what a client announces costs nothing. Its buffer comes from the pool of its loop. This room must
not know sockets, loops or requests: others tell it how many bytes came, and when.
"""
