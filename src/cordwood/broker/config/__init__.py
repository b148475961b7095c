"""Configuration keys of a broker: Kafka's names, our additions, and what is refused."""
