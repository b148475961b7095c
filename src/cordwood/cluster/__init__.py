"""A broker among brokers: what the cluster knows, and the replicas of a partition.

Decisions and values only. What has sockets and threads is in `broker/cluster`.
"""
