"""``cordwood cluster``: sets up a cluster, shows it and moves its partitions."""
