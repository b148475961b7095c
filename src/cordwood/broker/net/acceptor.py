"""Taking in clients: the listening socket, and how many connections there may be."""

import logging
import socket
from collections import Counter
from typing import Final

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.net.client_connection import ClientConnection
from cordwood.broker.net.dispatch import Dispatcher
from cordwood.broker.net.event_loop import READABLE, EventLoop
from cordwood.errors import ConfigError

logger = logging.getLogger(__name__)

_ACCEPT_ONCE: Final = 64  # then those already here have their turn
_OUT_OF_FILES_PAUSE_S: Final = 0.5


class Acceptor:
    """Belongs to the control loop, except for `listen`."""

    def __init__(self, config: BrokerConfig, loop: EventLoop, dispatcher: Dispatcher) -> None:
        self._config = config
        self._loop = loop
        self._dispatcher = dispatcher
        self._socket: socket.socket | None = None
        self._address = (config.host, config.port)

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    def listen(self) -> tuple[str, int]:
        """Bind and listen; return the address that came of it."""
        config = self._config
        try:
            found = socket.getaddrinfo(
                config.host, config.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
            )
            family, kind, number, _, address = found[0]
            listening = socket.socket(family, kind, number)
        except OSError as error:
            raise ConfigError("host", config.host, f"cannot be listened on: {error}") from error
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if config.socket_receive_buffer_bytes is not None:
                listening.setsockopt(
                    socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes
                )
            listening.bind(address)
            listening.listen(config.socket_listen_backlog_size)
        except OSError as error:
            listening.close()
            raise ConfigError(
                "port", config.port, f"cannot be listened on at {config.host}: {error}"
            ) from error
        listening.setblocking(False)
        self._socket = listening
        self._address = (config.host, listening.getsockname()[1])
        return self._address

    def start(self) -> None:
        if self._socket is not None:
            self._loop.register(self._socket.fileno(), READABLE, self._on_ready)

    def stop(self) -> None:
        if self._socket is not None:
            self._loop.unregister(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _on_ready(self, _mask: int) -> None:
        listening = self._socket
        for _ in range(_ACCEPT_ONCE):
            if listening is None:
                return
            try:
                connected, peer = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._admit(connected, str(peer[0]))

    def _pause(self, error: OSError) -> None:
        """No file handles left: who waits to be accepted waits on, we do not spin."""
        logger.error("connections cannot be accepted: %s", error)
        assert self._socket is not None
        self._loop.unregister(self._socket.fileno())
        self._loop.call_later(_OUT_OF_FILES_PAUSE_S, self.start)

    def _admit(self, connected: socket.socket, host: str) -> None:
        config = self._config
        if self._dispatcher.connection_count >= config.max_connections:
            logger.warning("%s: refused, there are max.connections already", host)
            self._refuse(connected)
            return
        if config.max_connections_per_ip < config.max_connections:
            counts = Counter(c.client_host for c in self._dispatcher.all_connections())
            if counts[host] >= config.max_connections_per_ip:
                logger.warning("%s: refused, it has max.connections.per.ip already", host)
                self._refuse(connected)
                return
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if config.socket_send_buffer_bytes is not None:
            connected.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes
            )
        connection = ClientConnection(connected, host, self._loop, self._dispatcher)
        self._dispatcher.connected(connection)
        self._dispatcher.metrics.accepted()
        connection.attach()

    def _refuse(self, connected: socket.socket) -> None:
        connected.close()
        self._dispatcher.metrics.refused()
