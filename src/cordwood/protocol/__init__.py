"""Kafka's wire protocol as values: bytes to values and back.

Pure: no sockets, no files, no clocks, no threads. Records are opaque bytes here; `format`, which
this room does not know, decodes them.
"""
