"""The formats of files and record batches. Pure: bytes and text in, values out, no I/O."""
