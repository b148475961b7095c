"""The wire as values: bytes in, values out, and back.

Pure: no sockets, no files, no clocks, no threads. Records are opaque bytes here; what they
mean is the business of `format`, which this room does not know.
"""
