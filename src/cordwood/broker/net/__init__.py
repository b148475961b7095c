"""Sockets and frames: event loops, connections, dispatch, answers, limits."""
