"""A Kafka server over `log`: connections, requests, groups, metrics.

What a partition promises is decided in `log`; here it is spoken over the wire. It must not
touch files except through the store, and must not know Spark, flags or the environment.
"""
