"""Sockets and frames: event loops, connections, the request router, answers, limits."""
