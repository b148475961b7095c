"""Produce and fetch: the two requests that carry records."""
