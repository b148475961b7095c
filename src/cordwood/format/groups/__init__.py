"""Records of ``__consumer_offsets``: keys and values of groups and their offsets."""
