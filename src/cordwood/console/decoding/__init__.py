"""Bytes of records as text, within limits. Pure."""
