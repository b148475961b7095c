"""Group state in ``__consumer_offsets``: written, read back, expired."""
