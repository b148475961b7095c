"""The event loop: sockets that are ready, timers, calls from other threads.

A loop is the one thread that may touch what lives in it; `call_soon` is the way in for all others.
It calls functions and does not know what they do: neither connections nor requests nor TLS. Code
that needs only the time and calls sees it as a `Scheduler`, which tests move by hand.
"""
