"""A Kafka server over `log`: connections, requests, groups, metrics.

`log` decides what a partition promises; the broker speaks Kafka's protocol. It must not touch
files except through the store, and must not know Spark, flags or the environment.
"""
