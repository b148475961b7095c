"""TLS handshakes of clients, in a loop of their own.

A handshake costs a millisecond of arithmetic, and its client may take its time. So handshakes
share a thread that does nothing else, and a connection gets to the loops that serve requests when
its handshake is over. Their number and their time are limited:

    10 s        for one handshake
    1,024       at the same time. If there are more, the oldest one whose client is slow ends, of
                the host that has the most. If no client is slow, the next clients wait in the
                backlog of their listener: it is the broker that has no time.
"""

import logging
import socket
import ssl
from collections import Counter
from itertools import islice
from typing import Final

from cordwood.broker.net.connections.client_connection import ClientConnection
from cordwood.broker.net.connections.connection_host import ConnectionHost
from cordwood.broker.net.loop.event_loop import READABLE, WRITABLE, EventLoop, Timer
from cordwood.broker.net.requests.session import Session
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from cordwood.broker.security.authentication_events import CERTIFICATE, Attempt
from cordwood.broker.security.tls_listener import ClientRefusedError, TlsListener
from cordwood.security.principal import ANONYMOUS, Principal
from cordwood.value_class import replace

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 10.0
HANDSHAKES_MAX: Final = 1024
_SLOW_S: Final = 1.0  # a client that has not answered for so long may be replaced
_LOG_PAUSE_S: Final = 1.0  # one line about failed handshakes in that time

_NO_CERTIFICATE: Final = "PEER_DID_NOT_RETURN_A_CERTIFICATE"
# What OpenSSL says, in words for an operator.
_REASONS: Final = {
    "HTTP_REQUEST": "the client sent an HTTP request; this is a TLS listener for Kafka clients",
    "WRONG_VERSION_NUMBER": "the client does not speak TLS; set its security.protocol",
    "UNSUPPORTED_PROTOCOL": "the client's versions of TLS are not in ssl.enabled.protocols",
    "NO_SHARED_CIPHER": "client and broker have no cipher suite in common",
    _NO_CERTIFICATE: "the client has no certificate, which is required",
    "TLSV1_ALERT_UNKNOWN_CA": "the client does not trust the broker's certificate",
    "SSLV3_ALERT_BAD_CERTIFICATE": "the client refuses the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "the client refuses the broker's certificate",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "the client finds the broker's certificate expired",
}


class TlsHandshakes:
    """All handshakes under way. Belongs to its loop, except for `begin` and `has_room`.

    `when_done` connections go on in `target`, the control loop.
    """

    def __init__(self, loop: EventLoop, target: EventLoop, host: ConnectionHost) -> None:
        self.loop = loop
        self._target = target
        self._host = host
        self.pending: dict[TlsHandshake, None] = {}  # oldest first
        self._logged_s = -_LOG_PAUSE_S
        self._unlogged = 0

    # --- the control loop --------------------------------------------------------------------

    @property
    def has_room(self) -> bool:
        """Whether a further client can be taken now. Any thread may ask."""
        pending = self.pending
        excess = len(pending) - HANDSHAKES_MAX
        if excess < 0:
            return True
        self.loop.call_soon(_turn)  # so that it knows who is slow now
        try:
            # Those before it make room for the clients that were taken just now.
            oldest = next(islice(pending, excess, None))
        except (StopIteration, RuntimeError):  # another thread changed it
            return True
        return oldest.is_slow()

    def begin(self, connected: socket.socket, session: Session, listener: TlsListener) -> None:
        """Have a client that was accepted prove itself. It is counted from now on."""
        handshake = TlsHandshake(self, connected, session, listener)
        self._host.registry.add(handshake)
        self.pending[handshake] = None
        self.loop.call_soon(handshake.start)

    # --- the loop of handshakes --------------------------------------------------------------

    def make_room(self) -> None:
        """If there are too many, end the oldest slow one of the host that has the most."""
        pending = list(self.pending)
        if len(pending) <= HANDSHAKES_MAX:
            return
        slow = [handshake for handshake in pending if handshake.is_slow()]
        if slow:
            host, _ = Counter(handshake.session.client_host for handshake in slow).most_common(1)[0]
            victim = next(h for h in slow if h.session.client_host == host)
            victim.fail("others wait, and the client is slow")

    def forget(self, handshake: "TlsHandshake") -> None:
        self.pending.pop(handshake, None)
        self._host.registry.remove(handshake)

    def connect(self, tls: TlsSocket, session: Session, principal: Principal) -> None:
        """The handshake is over: go on in the control loop."""
        host, target = self._host, self._target
        if principal != ANONYMOUS:
            host.certificate_events.succeeded(_attempt(session), principal)

        def enter() -> None:
            known = session
            if principal != ANONYMOUS:
                access = host.access_of(principal, session.client_host)
                known = replace(session, principal=principal, access=access)
            connection = ClientConnection(tls, known, target, host)
            host.registry.add(connection)
            connection.attach()

        target.call_soon(enter)

    def failed(self, session: Session, reason: str, *, is_of_client: bool) -> None:
        """Count it, and log it unless there was a line just now: anyone can cause these.

        `is_of_client`: the client could not prove who it is.
        """
        self._host.metrics.handshake_failed()
        if is_of_client:
            self._host.certificate_events.failed(_attempt(session), reason)
        now_s = self.loop.now_s()
        if now_s - self._logged_s < _LOG_PAUSE_S:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} more since the last such line)" if self._unlogged else ""
        logger.info(
            "%s: TLS handshake on %s failed: %s%s",
            session.client_host,
            session.listener.name,
            reason,
            more,
        )
        self._logged_s, self._unlogged = now_s, 0


class TlsHandshake:
    """One client until it has proved itself. The registry counts it as a connection."""

    __slots__ = (
        "_all",
        "_connected",
        "_interest",
        "_is_over",
        "_listener",
        "_timer",
        "_tls",
        "last_active_s",
        "loop",
        "session",
    )

    is_idle = True
    is_owed = False
    is_receiving = False
    muted_until_s = 0.0

    def __init__(
        self,
        handshakes: TlsHandshakes,
        connected: socket.socket,
        session: Session,
        listener: TlsListener,
    ) -> None:
        self.loop = handshakes.loop
        self.session = session
        self.last_active_s = self.loop.now_s()
        self._all = handshakes
        self._connected = connected
        self._listener = listener
        self._tls: TlsSocket | None = None
        self._timer: Timer | None = None
        self._interest = READABLE
        self._is_over = False

    def is_slow(self) -> bool:
        """The client had not sent what it must send, when the loop last looked, for a while."""
        return self._tls is not None and self.loop.turn_s - self.last_active_s > _SLOW_S

    def unmute(self) -> None:
        """It is never muted."""

    def is_too_slow(self, now_s: float) -> bool:
        return False  # it has a time limit of its own

    def start(self) -> None:
        if self._is_over:
            return
        self._all.make_room()
        self._tls = TlsSocket(self._connected, self._listener.context)
        self.last_active_s = self.loop.now_s()
        self._timer = self.loop.call_later(HANDSHAKE_S, self._expire)
        self.loop.register(self._tls.fileno(), self._interest, self._on_ready)

    def _expire(self) -> None:
        self.fail(f"it took more than {HANDSHAKE_S:.0f} s")

    def _on_ready(self, _mask: int) -> None:
        assert self._tls is not None
        self.last_active_s = self.loop.now_s()
        try:
            self._tls.do_handshake()
        except BlockingIOError:
            self._await(WRITABLE if self._tls.read_waits_for_room else READABLE)
        except OSError as error:
            self.fail(_reason(error), is_of_client=_is_of_certificate(error))
        else:
            try:
                self._finish(self._tls)
            except Exception:  # a bug of ours: once is enough
                logger.exception("%s: a TLS handshake failed", self.session.client_host)
                self.fail("the broker failed")

    def _await(self, interest: int) -> None:
        if interest != self._interest:
            assert self._tls is not None
            self._interest = interest
            self.loop.modify(self._tls.fileno(), interest)

    def _finish(self, tls: TlsSocket) -> None:
        try:
            principal = self._listener.principal_of(tls.tls)
        except ClientRefusedError as error:
            self.fail(str(error), is_of_client=True)
            return
        self._leave()
        self._all.connect(tls, self.session, principal)

    def fail(self, reason: str, *, is_of_client: bool = False) -> None:
        if not self._is_over:
            self.close("")
            self._all.failed(self.session, reason, is_of_client=is_of_client)

    def close(self, reason: str) -> None:
        """End it. The parameter is for the registry."""
        if not self._is_over:
            self._leave()
            (self._tls or self._connected).close()

    def _leave(self) -> None:
        self._is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._tls is not None and self._tls.fileno() >= 0:
            self.loop.unregister(self._tls.fileno())
        self._all.forget(self)


def _turn() -> None:
    """A loop that is idle looks at its sockets."""


def _attempt(session: Session) -> Attempt:
    return Attempt(
        listener=session.listener.name, client_host=session.client_host, mechanism=CERTIFICATE
    )


def _is_of_certificate(error: OSError) -> bool:
    """Whether the client has no certificate, or one that is refused."""
    return isinstance(error, ssl.SSLCertVerificationError) or (
        isinstance(error, ssl.SSLError) and error.reason == _NO_CERTIFICATE
    )


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError)):
        return "the client left"
    if isinstance(error, ssl.SSLError):
        return _REASONS.get(error.reason or "", str(error))
    return str(error)
