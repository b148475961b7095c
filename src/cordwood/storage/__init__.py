"""The files of a partition, in rooms. The only room that accesses the disk.

All access goes through the file-system port in `files`, so that a simulated file system can lose
power between any two calls, or fail any call. Imports point from the first to the last, never back.

    recovery        finds the end of a log, and what of it is torn or damaged
    segment         one log file and its indexes
    replacement     segments that take the place of others, and which files count meanwhile
    segment_parts   what a segment is made of
    indexes         the four indexes of a segment, each in its file
    log_file        the batches of one `.log` file: reading them, and where they end
    small_files     the files beside the segments
    files           the port
    disk            the operating system behind the port

`segment` and `replacement` do not know each other, nor do `log_file` and `small_files`.
"""
