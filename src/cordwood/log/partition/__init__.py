"""One partition for its one writer: state, appending, syncing, truncation, replacing segments."""
