"""Produce and fetch: the two requests that move records."""
