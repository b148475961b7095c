"""The operating system behind the port: its files, locks, syncs and errors.

The port, `files`, is built on `real_file`, `directory_lock` and `file_access`. The others are
called directly: syncs by the kernel, the thread that syncs logs in the order of their requests
(`flusher`), the exchange of two directories, and what an error says about the disk. This room must
not know what a file contains, nor the port above it.
"""
