"""Connections to a broker for requests of viewers, as one user."""

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Final

from cordwood.errors import BrokerUnreachableError
from cordwood.remote.remote_cluster import Address, RemoteCluster
from cordwood.remote.wire_connection import Connector
from cordwood.security.clients.client_security import ClientSecurity

_CONNECT_TIMEOUT_S: Final = 3.0
_ANSWER_TIMEOUT_S: Final = 15.0
_IDLE_MAX: Final = 3


class BrokerAccess:
    """Lends connections to one broker or cluster, and keeps a few of them. Any thread."""

    def __init__(self, addresses: Sequence[Address], security: ClientSecurity | None) -> None:
        self.addresses = tuple(addresses)
        self.security = security
        self._connector = Connector(
            security, connect_timeout_s=_CONNECT_TIMEOUT_S, answer_timeout_s=_ANSWER_TIMEOUT_S
        )
        self._idle: list[RemoteCluster] = []
        self._lock = threading.Lock()
        self._is_closed = False

    @property
    def shown_address(self) -> str:
        return ",".join(f"[{h}]:{p}" if ":" in h else f"{h}:{p}" for h, p in self.addresses)

    def connect(self) -> RemoteCluster:
        """A connection of its own. The caller closes it."""
        return RemoteCluster(self.addresses, connect=self._connector)

    @contextlib.contextmanager
    def connected(self) -> Iterator[RemoteCluster]:
        """A connection for one thread, for a while. After an error it is not used again."""
        with self._lock:
            known = self._idle.pop() if self._idle else None
        cluster = known or self.connect()
        try:
            cluster.forget()  # it may be old
            yield cluster
        except BrokerUnreachableError:
            cluster.close()
            raise
        except BaseException:
            self._give_back(cluster)
            raise
        self._give_back(cluster)

    def _give_back(self, cluster: RemoteCluster) -> None:
        with self._lock:
            if not self._is_closed and len(self._idle) < _IDLE_MAX:
                self._idle.append(cluster)
                return
        cluster.close()

    def close(self) -> None:
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for cluster in idle:
            cluster.close()
