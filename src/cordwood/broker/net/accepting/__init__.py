"""What a client passes before it is served: listening sockets, limits, TLS handshakes, SASL.

An `Acceptor` admits clients under the limits and rates of its listener. TLS handshakes have a loop
of their own. The SASL gate stays in the session after that, because sessions expire. This room
makes connections and hands them over; no other room of `net` knows it.
"""
