"""Sockets and frames, in rooms. Imports point from the first to the last, never back.

    accepting     listening, limits, TLS handshakes, SASL: until a client is served
    connections   one client's connection, and what all connections share
    routing       the handler of each request, and the thread that it runs in
    rows          small requests of many connections, handled in one call
    requests      a request and its answer, as handlers see them
    outbound      connections that this broker opens to other nodes
    sockets       one connected socket in a loop: with TLS, or without
    loop          the event loop
    memory        the memory of frames that do not fit the receive buffer

`outbound` stands apart: it knows `sockets` and what lies below, and no room above knows it.
"""
