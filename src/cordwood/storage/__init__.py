"""Files of one partition. The only room that touches the disk.

Everything goes through the file-system port in `files`, so that a simulated file system can
lose power between any two calls or fail any one of them.
"""
