"""A request and its answer, as handlers see them.

Who sent it and what that client may do (`session`, with the port to its `gate`), what a handler is
given and returns (`request`), the place of its answer in the queue of the connection (`answer`),
and what is counted on the way (`request_metrics`). A connection is a protocol here. This room must
not know how bytes are received, nor which handlers there are.
"""
