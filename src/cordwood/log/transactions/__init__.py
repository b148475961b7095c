"""Transactions over partitions and groups: a pure machine, its log, its markers, its recovery."""
