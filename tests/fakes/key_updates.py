"""A TLS client that changes its keys as often as it likes, which Python's ssl cannot do."""

import ctypes
import ctypes.util
import socket

import pytest


class KeyUpdates:
    """A connection through OpenSSL's own library. Skips the test where that is not found."""

    def __init__(self, address: str) -> None:
        name = ctypes.util.find_library("ssl")
        if name is None:
            pytest.skip("needs OpenSSL's library")
        self._library = library = ctypes.CDLL(name)
        pointer = ctypes.c_void_p
        for function in (library.TLS_client_method, library.SSL_CTX_new, library.SSL_new):
            function.restype = pointer
        library.SSL_CTX_new.argtypes = library.SSL_new.argtypes = [pointer]
        library.SSL_set_fd.argtypes = library.SSL_key_update.argtypes = [pointer, ctypes.c_int]
        library.SSL_connect.argtypes = library.SSL_do_handshake.argtypes = [pointer]
        library.SSL_free.argtypes = library.SSL_CTX_free.argtypes = [pointer]
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)))
        self._context = library.SSL_CTX_new(library.TLS_client_method())
        self._ssl = library.SSL_new(self._context)
        library.SSL_set_fd(self._ssl, self._socket.fileno())
        assert library.SSL_connect(self._ssl) == 1

    def send(self) -> bool:
        """Change keys once more; False: the broker has closed the connection."""
        self._library.SSL_key_update(self._ssl, 0)
        return bool(self._library.SSL_do_handshake(self._ssl) == 1)

    def close(self) -> None:
        self._library.SSL_free(self._ssl)
        self._library.SSL_CTX_free(self._context)
        self._socket.close()
