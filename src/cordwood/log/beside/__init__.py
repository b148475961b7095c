"""Reading logs that another process writes: from their files, or from an archive."""
