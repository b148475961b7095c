"""The option `where`: a condition on partition, offset, timestamp and key that prunes a scan."""
