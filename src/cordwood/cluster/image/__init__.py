"""What the controllers have decided, as values: brokers, topics, partitions, configs."""
