"""Topics of a store on disk: catalog, data directories, committed offsets, producer ids."""
