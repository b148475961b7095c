"""The TLS of connections that this broker opens: its current context, and how it is replaced.

A context is never changed, only replaced, so a connection keeps the one that it began with.
"""

import logging
import ssl
import threading

from cordwood.broker.security.tls_material import FileMark
from cordwood.errors import ConfigError
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.security.clients.client_tls import tls_context

logger = logging.getLogger(__name__)


class PeerTls:
    """Threads that connect use it; the thread that reloads replaces its context."""

    def __init__(self, name: str, security: ClientSecurity) -> None:
        """`name` says to whom the connections are. Reads the files. Raises `ConfigError`."""
        self.name = name
        self._security = security
        self._lock = threading.Lock()  # held while the context is replaced
        self._marks = self._files()
        self._context = tls_context(security)

    @property
    def context(self) -> ssl.SSLContext:
        """For the next connection."""
        return self._context

    def reload(self, *, is_forced: bool = False) -> bool:
        """Use the files as they are now, if they have changed. Returns whether they are used.

        Files that cannot be used are logged and tried again, and the context stays as it is.
        """
        with self._lock:
            marks = self._files()
            if marks == self._marks and not is_forced:
                return False
            try:
                self._context = tls_context(self._security)
            except ConfigError as error:
                logger.error("%s: the new certificates are not used: %s", self.name, error)
                return False
            self._marks = marks
            logger.info("%s: new connections use the certificates that were replaced", self.name)
            return True

    def _files(self) -> list[FileMark]:
        stores = (self._security.trust, self._security.identity)
        return [
            FileMark.of(path)
            for store in stores
            if store is not None
            for path in (store.location, store.key_location)
        ]


def peer_tls(name: str, security: ClientSecurity) -> PeerTls | None:
    """The TLS of connections with `security`; None if they have none."""
    return PeerTls(name, security) if security.protocol.has_tls else None
