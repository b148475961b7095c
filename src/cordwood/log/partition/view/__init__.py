"""What readers and other replicas see of a log: its segments, its archived beginning, its gaps.

A view is immutable and is read without a lock. This room must not change the state of the log, and
must not know how batches are written.
"""
