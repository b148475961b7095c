"""The replicas of a partition as machines: events in, calls of ports out, and no threads.

A machine is called in one loop only. What waits for a disk, a network or a clock is a port
(`replication_ports`). The broker gives real ones, the simulator in the tests gives simulated ones.
"""
