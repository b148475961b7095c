"""What bytes mean on disk and in record sets. Pure: bytes and text in, values out, no I/O."""
