"""``cordwood spark``: jobs on Spark."""
