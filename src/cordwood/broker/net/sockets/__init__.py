"""One connected socket in a loop: what the loop reports of it, and what it has still to send.

`Registration` and `Outbox` are for plain sockets. `TlsRegistration` and `TlsOutbox` do the same
over a `TlsSocket`, so a connection need not know which of them it has. A broker without TLS does
not load those. This room sees bytes and ranges of files, and must not know frames or requests.
"""
