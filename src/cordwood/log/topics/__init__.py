"""Topics of a store: data directories, catalog, registry, committed offsets, producer ids."""
