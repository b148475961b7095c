"""Files beside the segments: checkpoints, metadata, snapshots, checked documents."""
