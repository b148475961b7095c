"""Receiving and sending by descriptor, for kernels that run as plain Python.

`socket_calls.pxd` has the same two functions for the compiler. They return the number of bytes, or
the negative code of the error. They never wait: the sockets do not block. A signal does not end
them.
"""

import os

from typing_extensions import Buffer


def receive(fd: int, buffer: Buffer, at: int, size: int) -> int:
    """Receive at most `size` bytes into ``buffer[at:]``, which must have room for them."""
    try:
        return os.readv(fd, [memoryview(buffer)[at : at + size]])
    except OSError as error:
        return -(error.errno or 1)


def send(fd: int, data: Buffer, at: int, size: int) -> int:
    """Send as much of ``data[at : at + size]`` as the socket takes."""
    try:
        return os.write(fd, memoryview(data)[at : at + size])
    except OSError as error:
        return -(error.errno or 1)
