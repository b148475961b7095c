"""One connection that this broker opens to another node.

    CONNECTING  the name is looked up in a thread, then the socket connects
    SECURING    TLS, if configured; the host name is checked
    GREETING    ApiVersions, then SASL if configured
    READY       requests are sent at once and answered in their order
    CLOSED      every request that was not answered has its error

Everything has a limit: the time until READY, the time of each answer, the size of an answer, and
the number of requests that wait. If the oldest request is late, all behind it are late too, so the
connection is closed.
"""

import logging
import os
import random
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from functools import partial
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from cordwood.broker.net.loop.event_loop import READABLE, WRITABLE, EventLoop, Timer
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer, OutboundCall
from cordwood.broker.net.outbound.outbound_frames import OutboundFrames
from cordwood.broker.net.outbound.outbound_sasl import OutboundSasl, SaslRequest
from cordwood.broker.net.sockets.tls_socket import TlsSocket
from cordwood.broker.security.peer_tls import PeerTls
from cordwood.errors import (
    AuthenticationFailedError,
    BrokerNotTrustedError,
    BrokerUnreachableError,
    CordwoodError,
    FormatError,
)
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.messages import decode_response
from cordwood.protocol.wire_values import encode_string, skip_tagged_fields
from cordwood.quantities import MIB
from cordwood.security.clients.client_security import ClientSecurity

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages

logger = logging.getLogger(__name__)

READY_TIMEOUT_S: Final = 10.0
FRAME_BYTES_MAX: Final = 128 * MIB
WAITING_MAX: Final = 10_000

_HEADER: Final = struct.Struct(">hhi")
_INT32: Final = struct.Struct(">i")
_VERSIONS_SPOKEN_BY_ALL: Final = 0
_RECEIVES_PER_TURN: Final = 16  # then other sockets have their turn
_REAUTHENTICATE_AT: Final = (0.85, 0.95)  # of the lifetime of a session

Resolved = list[tuple[int, tuple[str, int]]]  # family and address


class Target(NamedTuple):
    """Where to connect, and how."""

    host: str
    port: int
    security: ClientSecurity
    tls: PeerTls | None  # of `security`; owned by whoever connects, and shared by its targets

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class _Phase(Enum):
    CONNECTING = auto()
    SECURING = auto()
    GREETING = auto()
    READY = auto()
    CLOSED = auto()


class _Sent(NamedTuple):
    """A request that was not answered yet. `call` is None for requests of the connection."""

    number: int
    api: ApiKey
    version: int
    deadline_s: float
    call: OutboundCall | None


class OutboundConnection:
    """One attempt and one life: once CLOSED it stays so. Belongs to the thread of `loop`.

    `when_closed` is called once, unless the owner calls `close`: with the error, after the errors
    of the requests.
    """

    def __init__(
        self,
        loop: EventLoop,
        target: Target,
        *,
        client_id: str,
        when_closed: Callable[[CordwoodError], None],
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self._loop = loop
        self._target = target
        self._client_id = encode_string(client_id, is_flexible=False)
        self._when_closed = when_closed
        self._frames = OutboundFrames(frame_bytes_max)
        self._phase = _Phase.CONNECTING
        self._socket: socket.socket | TlsSocket | None = None
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._waiting: deque[tuple[float, OutboundCall]] = deque()  # until READY
        self._sent: deque[_Sent] = deque()
        self._unsent: deque[bytes | memoryview] = deque()
        self._interest = 0
        self._number = 0
        self._sasl: OutboundSasl | None = None
        self._sasl_again_s: float | None = None
        self._is_computing = False  # an answer about SASL is looked at in a thread
        self._ended: CordwoodError | None = None  # how the stream ended meanwhile
        self._timer: Timer = loop.call_later(READY_TIMEOUT_S, self._check_time)
        self._ready_by_s = loop.now_s() + READY_TIMEOUT_S
        self._look_up()

    @property
    def is_ready(self) -> bool:
        return self._phase is _Phase.READY

    @property
    def was_ready(self) -> bool:
        """Whether it ever was ready: then a failure says little about the next attempt."""
        return bool(self._versions)

    @property
    def is_closed(self) -> bool:
        return self._phase is _Phase.CLOSED

    @property
    def waiting_count(self) -> int:
        """Requests that were not answered yet."""
        return len(self._waiting) + len(self._sent)

    # --- the owner -----------------------------------------------------------------------------

    def send(self, call: OutboundCall) -> None:
        """Send a request, as soon as the connection is ready."""
        if self._phase is _Phase.CLOSED:
            self._loop.call_soon(partial(call.when_done, self._unreachable("it was closed")))
            return
        if self.waiting_count >= WAITING_MAX:
            error = self._unreachable(f"{WAITING_MAX} requests wait for its answers")
            self._loop.call_soon(partial(call.when_done, error))
            return
        self._waiting.append((self._loop.now_s() + call.timeout_s, call))
        if self._phase is _Phase.READY:
            self._send_waiting()
        self._plan_check()

    def give_up(self, error: CordwoodError) -> None:
        """Close; requests that were not answered get `error`."""
        self._fail(error)

    def close(self) -> None:
        """Close without a word to anybody. Safe to repeat."""
        if self._phase is not _Phase.CLOSED:
            self._phase = _Phase.CLOSED
            self._waiting.clear()
            self._sent.clear()
            self._release()

    # --- connecting ------------------------------------------------------------------------------

    def _look_up(self) -> None:
        host, port = self._target.host, self._target.port
        try:
            family = socket.AF_INET6 if ip_address(host).version == 6 else socket.AF_INET
        except ValueError:
            thread = threading.Thread(target=self._resolve, name="cordwood-resolve", daemon=True)
            thread.start()
            return
        self._connect([(family, (host, port))])

    def _resolve(self) -> None:
        """In a thread of its own: a name server may take its time."""
        found: Resolved = []
        reason = "the name has no address"
        try:
            infos = socket.getaddrinfo(
                self._target.host, self._target.port, type=socket.SOCK_STREAM
            )
            found = [(info[0], (str(info[4][0]), int(info[4][1]))) for info in infos]
        except (OSError, UnicodeError) as error:
            reason = str(error)
        if found:
            self._loop.call_soon(partial(self._connect, found))
        else:
            self._loop.call_soon(partial(self._fail, self._unreachable(reason)))

    def _connect(self, addresses: Resolved) -> None:
        if self._phase is _Phase.CLOSED:
            return
        (family, address), *others = addresses
        try:
            opened = socket.socket(family, socket.SOCK_STREAM)
            opened.setblocking(False)
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        except OSError as error:
            self._fail(self._unreachable(error.strerror or str(error)))
            return
        self._socket = opened
        try:
            opened.connect(address)
        except BlockingIOError:
            pass
        except OSError as error:
            self._next_address(error, others)
            return
        self._interest = WRITABLE
        self._loop.register(opened.fileno(), WRITABLE, partial(self._connected, others))

    def _next_address(self, error: OSError, others: Resolved) -> None:
        self._release_socket()
        if others:
            self._connect(others)
        else:
            self._fail(self._unreachable(error.strerror or str(error)))

    def _connected(self, others: Resolved, _mask: int) -> None:
        opened = self._socket
        assert isinstance(opened, socket.socket), opened
        code = opened.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._next_address(OSError(code, os.strerror(code)), others)
            return
        fd = opened.fileno()
        self._loop.unregister(fd)
        if self._target.tls is None:
            self._phase = _Phase.GREETING
        else:
            self._phase = _Phase.SECURING
            self._socket = TlsSocket(
                opened, self._target.tls.context, server_name=self._target.host.partition("%")[0]
            )
        self._interest = READABLE
        self._loop.register(fd, READABLE, self._ready)
        if self._phase is _Phase.SECURING:
            self._secure()
        else:
            self._greet()

    def _secure(self) -> None:
        assert isinstance(self._socket, TlsSocket)
        try:
            self._socket.do_handshake()
        except BlockingIOError:
            self._set_interest()
            return
        except OSError as error:
            self._fail(self._not_trusted(error))
            return
        self._phase = _Phase.GREETING
        self._greet()

    def _greet(self) -> None:
        self._send_own(ApiKey.API_VERSIONS, _VERSIONS_SPOKEN_BY_ALL, b"")

    # --- the socket ------------------------------------------------------------------------------

    def _ready(self, mask: int) -> None:
        if self._phase is _Phase.SECURING:
            self._secure()
            return
        if mask & WRITABLE and not self._flush():
            return
        if mask & READABLE or self._has_more():
            self._receive()
        self._set_interest()

    def _has_more(self) -> bool:
        return isinstance(self._socket, TlsSocket) and self._socket.has_more

    def _receive(self) -> None:
        scratch = self._loop.scratch
        for _ in range(_RECEIVES_PER_TURN):
            if self._phase is _Phase.CLOSED:
                return
            assert self._socket is not None
            room = self._frames.room(scratch)
            try:
                count = self._socket.recv_into(room)
            except BlockingIOError:
                return
            except OSError as error:
                self._end_stream(error.strerror or str(error))
                return
            if not count:
                self._end_stream(self._closed_by_peer())
                return
            try:
                for frame in self._frames.received(room, count):
                    self._answer(frame)
                    if self.is_closed:
                        return
            except FormatError as error:
                self._fail(self._unreachable(f"its answer cannot be read: {error}"))
                return
            if count < len(room) and not self._has_more():
                return
        if self._has_more():  # else the loop reports the socket again
            self._loop.call_soon(partial(self._ready, READABLE))

    def _end_stream(self, reason: str) -> None:
        """Nothing more will come. What came before counts first, such as why SASL failed."""
        error = self._unreachable(reason)
        if self._is_computing:
            self._ended = error
            self._release_socket()
        else:
            self._fail(error)

    def _closed_by_peer(self) -> str:
        if self._phase is _Phase.GREETING and not self._versions:
            return "it closed the connection; does the listener have another security protocol?"
        return "it closed the connection"

    def _flush(self) -> bool:
        """Send what the socket takes. False: the connection has failed."""
        unsent = self._unsent
        assert self._socket is not None
        try:
            while unsent:
                piece = unsent[0]
                count = self._socket.send(piece)
                if count == len(piece):
                    unsent.popleft()
                else:
                    unsent[0] = memoryview(piece)[count:]
        except BlockingIOError:
            pass
        except OSError as error:
            self._fail(self._unreachable(error.strerror or str(error)))
            return False
        return True

    def _set_interest(self) -> None:
        if self._phase is _Phase.CLOSED or self._socket is None:
            return
        interest = READABLE
        if self._unsent or (
            isinstance(self._socket, TlsSocket) and self._socket.read_waits_for_room
        ):
            interest |= WRITABLE
        if interest != self._interest:
            self._interest = interest
            self._loop.modify(self._socket.fileno(), interest)

    # --- requests and answers --------------------------------------------------------------------

    def _send_own(self, api: ApiKey, version: int, body: bytes) -> None:
        self._write(api, version, body, self._ready_by_s, None)
        if self._flush():
            self._set_interest()

    def _send_waiting(self) -> None:
        if self._sasl is not None:
            return
        if self._sasl_again_s is not None and self._loop.now_s() >= self._sasl_again_s:
            if not self._sent:  # else: once those that are out were answered
                self._authenticate()
            return
        waiting = self._waiting
        while waiting:
            deadline_s, call = waiting.popleft()
            if call.mark is not None and call.mark.api not in self._versions:
                mistaken = self._unreachable(call.mark.or_else)
                self._loop.call_soon(partial(call.when_done, mistaken))
                continue
            version = self._version(call)
            if version is None:
                theirs = self._versions.get(call.api, (0, -1))
                error = self._unreachable(
                    f"it serves versions {theirs[0]} to {theirs[1]} of {KNOWN_APIS[call.api].name},"
                    f" but this broker needs {call.version_min} to {call.version_max}"
                )
                self._loop.call_soon(partial(call.when_done, error))
                continue
            try:
                body = call.encode(version)
            except Exception as error:  # a bug of ours: nobody waits for ever
                logger.exception("%s: a request could not be encoded", self._target)
                reason = f"the request could not be encoded: {error!r}"
                self._loop.call_soon(partial(call.when_done, self._unreachable(reason)))
                continue
            self._write(call.api, version, body, deadline_s, call)
        if self._unsent and self._flush():
            self._set_interest()

    def _version(self, call: OutboundCall) -> int | None:
        theirs = self._versions.get(call.api)
        if theirs is None:
            return None
        newest = min(call.version_max, theirs[1])
        return newest if newest >= max(call.version_min, theirs[0]) else None

    def _write(
        self, api: ApiKey, version: int, body: bytes, deadline_s: float, call: OutboundCall | None
    ) -> None:
        self._number = (self._number + 1) & 0x7FFF_FFFF
        tags = b"\0" if KNOWN_APIS[api].is_flexible(version) else b""
        head = _HEADER.pack(api, version, self._number) + self._client_id + tags
        self._unsent.append(_INT32.pack(len(head) + len(body)) + head + body)
        self._sent.append(_Sent(self._number, api, version, deadline_s, call))

    def _answer(self, frame: memoryview) -> None:
        number = _INT32.unpack_from(frame)[0]
        if not self._sent or self._sent[0].number != number:
            raise FormatError(f"an answer has the number {number} of no request")
        sent = self._sent.popleft()
        at = _INT32.size
        if sent.api != ApiKey.API_VERSIONS and KNOWN_APIS[sent.api].is_flexible(sent.version):
            at = skip_tagged_fields(frame, at)
        body = frame[at:]
        if sent.call is not None:
            self._give(sent.call, OutboundAnswer(sent.version, body))
        elif sent.api == ApiKey.API_VERSIONS:
            self._learn_versions(body)
        else:
            self._continue_sasl(body)
        if not self._sent and self._waiting and self._phase is _Phase.READY:
            self._send_waiting()

    def _give(self, call: OutboundCall, answer: OutboundAnswer) -> None:
        """Whatever one does with its answer, the others get theirs."""
        try:
            call.when_done(answer)
        except Exception:
            logger.exception("%s: an answer could not be dealt with", self._target)

    def _learn_versions(self, body: memoryview) -> None:
        answer = cast(
            "messages.ApiVersionsResponse",
            decode_response(ApiKey.API_VERSIONS, _VERSIONS_SPOKEN_BY_ALL, body),
        )
        if answer.error_code:
            self._fail(self._unreachable(f"it refuses ApiVersions with {answer.error_code}"))
            return
        self._versions = {
            each.api_key: (each.min_version, each.max_version) for each in answer.api_keys
        }
        if self._target.security.protocol.has_sasl:
            self._authenticate()
        else:
            self._become_ready()

    def _become_ready(self) -> None:
        self._phase = _Phase.READY
        self._send_waiting()
        self._plan_check()

    # --- SASL ------------------------------------------------------------------------------------

    def _authenticate(self) -> None:
        try:
            self._sasl = OutboundSasl(self._target.security, str(self._target))
        except CordwoodError as error:  # the password cannot be read
            self._fail(error)
            return
        self._ready_by_s = self._loop.now_s() + READY_TIMEOUT_S
        self._send_sasl(self._sasl.first())

    def _send_sasl(self, request: SaslRequest) -> None:
        self._send_own(request.api, request.version, request.body)

    def _continue_sasl(self, body: memoryview) -> None:
        sasl = self._sasl
        assert sasl is not None
        self._is_computing = True
        thread = threading.Thread(
            target=self._compute_sasl, args=(sasl, bytes(body)), name="cordwood-sasl", daemon=True
        )
        thread.start()

    def _compute_sasl(self, sasl: OutboundSasl, body: bytes) -> None:
        """In a thread of its own: the other node says how many rounds SCRAM takes."""
        try:
            following = sasl.receive(memoryview(body))
        except AuthenticationFailedError as error:
            self._loop.call_soon(partial(self._fail, error))
        except FormatError as error:
            reason = f"its answer cannot be read: {error}"
            self._loop.call_soon(partial(self._fail, self._unreachable(reason)))
        else:
            self._loop.call_soon(partial(self._sasl_computed, sasl, following))

    def _sasl_computed(self, sasl: OutboundSasl, following: SaslRequest | None) -> None:
        self._is_computing = False
        if self._phase is _Phase.CLOSED:
            return
        if self._ended is not None:
            self._fail(self._ended)
            return
        if following is not None:
            self._send_sasl(following)
            return
        self._sasl = None
        self._sasl_again_s = None
        if sasl.lifetime_ms > 0:
            share = random.uniform(*_REAUTHENTICATE_AT)
            self._sasl_again_s = self._loop.now_s() + share * sasl.lifetime_ms / 1000
        self._become_ready()

    # --- time ------------------------------------------------------------------------------------

    def _deadlines(self) -> Iterable[float]:
        if self._phase is not _Phase.READY:
            yield self._ready_by_s
        if self._sent:
            yield min(sent.deadline_s for sent in self._sent)
        if self._waiting:
            yield min(deadline_s for deadline_s, _ in self._waiting)

    def _plan_check(self) -> None:
        earliest = min(self._deadlines(), default=None)
        if earliest is None or (not self._timer.is_cancelled and self._timer.when_s <= earliest):
            return
        self._timer.cancel()
        self._timer = self._loop.call_later(
            max(earliest - self._loop.now_s(), 0.0), self._check_time
        )

    def _check_time(self) -> None:
        self._timer.cancel()  # it has run
        if self._phase is _Phase.CLOSED:
            return
        now_s = self._loop.now_s()
        earliest = min(self._deadlines(), default=None)
        if earliest is None:
            return
        if earliest <= now_s:
            what = "it did not answer in time" if self.is_ready else "it did not become ready"
            self._fail(self._unreachable(what))
            return
        self._plan_check()

    # --- the end ---------------------------------------------------------------------------------

    def _fail(self, error: CordwoodError) -> None:
        if self._phase is _Phase.CLOSED:
            return
        self._phase = _Phase.CLOSED
        calls = [sent.call for sent in self._sent if sent.call is not None]
        calls += [call for _, call in self._waiting]
        self._sent.clear()
        self._waiting.clear()
        self._release()
        for call in calls:
            self._loop.call_soon(partial(call.when_done, error))
        self._loop.call_soon(partial(self._when_closed, error))

    def _release(self) -> None:
        self._timer.cancel()
        self._release_socket()
        self._unsent.clear()

    def _release_socket(self) -> None:
        if self._socket is not None:
            if self._socket.fileno() >= 0:
                self._loop.unregister(self._socket.fileno())
            self._socket.close()
            self._socket = None

    def _unreachable(self, reason: str) -> BrokerUnreachableError:
        return BrokerUnreachableError(str(self._target), reason)

    def _not_trusted(self, error: OSError) -> CordwoodError:
        if isinstance(error, ssl.SSLCertVerificationError):
            return BrokerNotTrustedError(str(self._target), error.verify_message)
        if isinstance(error, ssl.SSLError):
            reason = f"the TLS handshake failed: {error.reason or error}"
            return BrokerUnreachableError(str(self._target), reason)
        return self._unreachable(error.strerror or str(error))
