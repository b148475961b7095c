"""The files of a partition. The only room that accesses the disk.

All access goes through the file-system port in `files`, so that a simulated file system can lose
power between any two calls, or fail any call.
"""
