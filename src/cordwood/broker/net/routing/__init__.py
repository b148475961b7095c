"""The handler of each request, and the thread that it runs in.

Handlers register with the router, by API key; each frame is routed once. `workers` are the threads
of handlers that may wait for the disk. This room must not know any handler, nor how a connection
receives and sends.
"""
