"""A store: topics over data directories, opened for writing or for reading, and its upkeep."""
