"""The state of groups in ``__consumer_offsets``: written and loaded."""
