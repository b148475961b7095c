"""Accepts clients: the listening socket, and the limits on the number of connections."""

import logging
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.loopback import is_loopback
from cordwood.broker.config.security_config import ListenerConfig
from cordwood.broker.net.accepting.pacing import is_of_this_machine, send_unpaced
from cordwood.broker.net.connections.client_connection import ClientConnection
from cordwood.broker.net.connections.connection_host import ConnectionHost
from cordwood.broker.net.loop.event_loop import READABLE, EventLoop
from cordwood.broker.net.requests.session import Session
from cordwood.broker.security.connection_rates import ConnectionRates
from cordwood.errors import ConfigError
from cordwood.quantities import INT32_MAX
from cordwood.security.principal import ANONYMOUS

if TYPE_CHECKING:  # loaded with the first listener that has TLS or SASL
    from cordwood.broker.net.accepting.tls_handshakes import TlsHandshakes
    from cordwood.broker.security.authentication import ListenerAuthentication
    from cordwood.broker.security.tls_listener import TlsListener

logger = logging.getLogger(__name__)

_ACCEPT_ONCE: Final = 64  # then the connected clients have their turn
_OUT_OF_FILES_PAUSE_S: Final = 0.5
_TURN_S_MAX: Final = 10.0  # a client waits so long for the turn of its address; others give up too
_WAITING_MAX: Final = 1000
_HANDSHAKES_PAUSE_S: Final = 0.05


def bound_socket(listener: ListenerConfig, config: BrokerConfig) -> socket.socket:
    """A socket that listens where `listener` says. Raises `ConfigError`."""
    _, host, port = listener.listener
    is_named = config.listeners is not None
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, number, _, address = found[0]
        _check_is_local(listener, str(address[0]))
        listening = socket.socket(family, kind, number)
    except OSError as error:
        key = "listeners" if is_named else "host"
        raise ConfigError(key, host, f"cannot listen on it: {error}") from error
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if config.socket_receive_buffer_bytes is not None:
            listening.setsockopt(
                socket.SOL_SOCKET, socket.SO_RCVBUF, config.socket_receive_buffer_bytes
            )
        if is_loopback(str(address[0])):
            send_unpaced(listening)
        listening.bind(address)
        listening.listen(config.socket_listen_backlog_size)
    except OSError as error:
        listening.close()
        raise ConfigError(
            "listeners" if is_named else "port",
            port,
            f"cannot listen on it at {host}: {error}",
        ) from error
    return listening


def _check_is_local(listener: ListenerConfig, address: str) -> None:
    """A name can mean another address than it did when the configuration was checked."""
    if listener.is_local and not is_loopback(address):
        raise ConfigError(
            "listeners",
            str(listener.listener),
            f"must be an address of this machine only, but the name means {address} now",
        )


class Acceptor:
    """Belongs to the control loop, except for `listen`."""

    def __init__(
        self,
        listener: ListenerConfig,
        config: BrokerConfig,
        loop: EventLoop,
        host: ConnectionHost,
        handshakes: "TlsHandshakes | None" = None,
        rates: ConnectionRates | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        """`handshakes` must be given if the listener has TLS.

        `listening` is a socket that somebody else has bound; None: `listen` binds one.
        """
        self._given = listening
        self._rates = ConnectionRates() if rates is None else rates
        self._waiting: set[socket.socket] = set()  # clients beyond the rate of their address
        self._listener = listener
        self._handshakes = handshakes
        self._tls: TlsListener | None = None
        self._config = config
        self._loop = loop
        self._host = host
        self._socket: socket.socket | None = None
        _, bound_host, port = listener.listener
        self._address = (bound_host, port)
        self._known_as = ClientListener.of_config(listener, port)
        self._guarded: Callable[[Session, ListenerAuthentication], Session] | None = None
        if listener.sasl is not None:
            from cordwood.broker.net.accepting.sasl_gate import guarded

            self._guarded = lambda session, how: guarded(session, how, host, loop.now_s())

    @property
    def address(self) -> tuple[str, int]:
        return self._address

    @property
    def known_as(self) -> ClientListener:
        """The listener as clients know it, once it listens."""
        return self._known_as

    @property
    def tls(self) -> "TlsListener | None":
        """The TLS of the listener, once its files are loaded."""
        return self._tls

    def load_certificates(self) -> None:
        """Read the files of TLS, if the listener has it. Raises `ConfigError`."""
        if self._listener.tls is not None:
            from cordwood.broker.security.tls_listener import TlsListener

            self._tls = TlsListener(self._listener)

    def listen(self) -> None:
        """Bind and listen. `address` then has the port that the system chose."""
        listening = self._given
        if listening is None:
            listening = bound_socket(self._listener, self._config)
        listening.setblocking(False)
        self._socket = listening
        self._address = (self._address[0], listening.getsockname()[1])
        self._known_as = ClientListener.of_config(self._listener, self._address[1])

    def reconfigure(self, config: BrokerConfig) -> None:
        """Use other limits for the next connections."""
        self._config = config

    def start(self) -> None:
        if self._socket is not None:
            self._loop.register(self._socket.fileno(), READABLE, self._on_ready)

    def stop(self) -> None:
        if self._socket is not None:
            self._loop.unregister(self._socket.fileno())
            self._socket.close()
            self._socket = None
        for connected in self._waiting:
            connected.close()
        self._waiting.clear()

    def close_inherited(self) -> None:
        """In a forked child: nobody must think that this process accepts clients.

        The loop is shared with the parent, so nothing is unregistered.
        """
        if self._socket is not None:
            self._socket.close()

    def _on_ready(self, _mask: int) -> None:
        listening = self._socket
        for _ in range(_ACCEPT_ONCE):
            if listening is None:
                return
            if self._handshakes is not None and self._tls and not self._handshakes.has_room:
                self._wait(_HANDSHAKES_PAUSE_S)
                return
            wait_s = self._rates.accept_wait_s(
                self._known_as.name,
                broker_limit=self._config.max_connection_creation_rate,
                listener_limit=self._listener.max_connection_creation_rate,
            )
            if wait_s:
                self._wait(wait_s)  # clients wait in the backlog
                return
            try:
                connected, peer = listening.accept()
            except (BlockingIOError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            self._admit_in_turn(connected, str(peer[0]))

    def _pause(self, error: OSError) -> None:
        """No file handles are left: clients wait in the backlog, and we do not spin."""
        logger.error("cannot accept connections for %.1f s: %s", _OUT_OF_FILES_PAUSE_S, error)
        self._wait(_OUT_OF_FILES_PAUSE_S)

    def _wait(self, pause_s: float) -> None:
        """Leave clients in the backlog for a moment."""
        assert self._socket is not None
        self._loop.unregister(self._socket.fileno())
        self._loop.call_later(pause_s, self.start)

    def _admit_in_turn(self, connected: socket.socket, host: str) -> None:
        """Admit a client now, or when its address may connect again."""
        wait_s = self._rates.address_wait_s(host, _TURN_S_MAX)
        if wait_s == 0.0:
            self._admit(connected, host)
        elif wait_s is None or len(self._waiting) >= _WAITING_MAX:
            logger.warning("%s: connection refused: it connects too often", host)
            connected.close()
            self._host.metrics.refused()
        else:
            self._waiting.add(connected)
            self._loop.call_later(wait_s, lambda: self._turn_came(connected, host))

    def _turn_came(self, connected: socket.socket, host: str) -> None:
        if connected in self._waiting:  # else the broker stops
            self._waiting.remove(connected)
            self._admit(connected, host)

    def _admit(self, connected: socket.socket, host: str) -> None:
        config = self._config
        registry = self._host.registry
        if registry.count >= config.max_connections:
            self._refuse(connected, host, "max.connections", config.max_connections)
            return
        if (
            config.max_connections_per_ip < config.max_connections
            and registry.count_from(host) >= config.max_connections_per_ip
        ):
            self._refuse(connected, host, "max.connections.per.ip", config.max_connections_per_ip)
            return
        limit = self._listener.max_connections
        if limit < INT32_MAX and registry.count_on(self._known_as.name) >= limit:
            key = f"listener.name.{self._known_as.name.lower()}.max.connections"
            self._refuse(connected, host, key, limit)
            return
        connected.setblocking(False)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if config.socket_send_buffer_bytes is not None:
            connected.setsockopt(
                socket.SOL_SOCKET, socket.SO_SNDBUF, config.socket_send_buffer_bytes
            )
        if not self._listener.is_local and is_of_this_machine(connected, host):
            send_unpaced(connected)
        authentication = self._host.authentications.get(self._listener.name)
        session = Session(
            listener=self._known_as,
            client_host=host,
            client_port=_port_of(connected),
            access=self._host.access_of(ANONYMOUS, host),
            frame_bytes_max=self._host.frame_bytes_max,
        )
        if authentication is not None:
            assert self._guarded is not None, self._listener
            session = self._guarded(session, authentication)
        self._host.metrics.accepted()
        if self._tls is not None:
            assert self._handshakes is not None, self._listener
            self._handshakes.begin(connected, session, self._tls)
            return
        connection = ClientConnection(connected, session, self._loop, self._host)
        registry.add(connection)
        connection.attach()

    def _refuse(self, connected: socket.socket, host: str, key: str, limit: int) -> None:
        logger.warning("%s: connection refused: %s = %d is reached", host, key, limit)
        connected.close()
        self._host.metrics.refused()


def _port_of(connected: socket.socket) -> int:
    """The port of the client; 0 if it is gone already."""
    try:
        return int(connected.getpeername()[1])
    except (OSError, IndexError):
        return 0
