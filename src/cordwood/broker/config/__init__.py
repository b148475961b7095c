"""The configuration keys of a broker: Kafka's, our own, and those that are refused."""
