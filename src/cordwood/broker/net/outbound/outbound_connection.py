"""One connection that this broker opens to another node.

    OPENING     the node is reached, and TLS set up if configured: see `outbound_stream`
    GREETING    ApiVersions, then SASL if configured
    READY       requests are sent at once and answered in their order
    CLOSED      every request that was not answered has its error

Everything has a limit: the time until READY, the time of each answer, the size of an answer, and
the number of requests that wait. If the oldest request is late, all behind it are late too, so the
connection is closed.
"""

import logging
import random
import struct
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from cordwood.broker.net.loop.event_loop import EventLoop, Timer
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer, OutboundCall
from cordwood.broker.net.outbound.outbound_sasl import OutboundSasl, SaslRequest
from cordwood.broker.net.outbound.outbound_stream import OutboundStream
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.errors import (
    AuthenticationFailedError,
    CordwoodError,
    FormatError,
)
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.messages import decode_response
from cordwood.protocol.wire_values import encode_string, skip_tagged_fields
from cordwood.quantities import MIB

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages

logger = logging.getLogger(__name__)

READY_TIMEOUT_S: Final = 10.0
FRAME_BYTES_MAX: Final = 128 * MIB
WAITING_MAX: Final = 10_000

_HEADER: Final = struct.Struct(">hhi")
_INT32: Final = struct.Struct(">i")
_VERSIONS_SPOKEN_BY_ALL: Final = 0
_REAUTHENTICATE_AT: Final = (0.85, 0.95)  # of the lifetime of a session


class _Phase(Enum):
    OPENING = auto()
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
        self._stream = OutboundStream(
            loop,
            target,
            frame_bytes_max=frame_bytes_max,
            when_open=self._greet,
            when_frame=self._answer,
            when_ended=self._end_stream,
            when_failed=self._fail,
        )
        self._phase = _Phase.OPENING
        self._versions: Mapping[int, tuple[int, int]] = {}
        self._waiting: deque[tuple[float, OutboundCall]] = deque()  # until READY
        self._sent: deque[_Sent] = deque()
        self._number = 0
        self._sasl: OutboundSasl | None = None
        self._sasl_again_s: float | None = None
        self._is_computing = False  # an answer about SASL is looked at in a thread
        self._ended: CordwoodError | None = None  # how the stream ended meanwhile
        self._timer: Timer = loop.call_later(READY_TIMEOUT_S, self._check_time)
        self._ready_by_s = loop.now_s() + READY_TIMEOUT_S
        self._stream.start()

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
            self._loop.call_soon(partial(call.when_done, self._target.unreachable("it was closed")))
            return
        if self.waiting_count >= WAITING_MAX:
            error = self._target.unreachable(f"{WAITING_MAX} requests wait for its answers")
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

    # --- the stream ------------------------------------------------------------------------------

    def _greet(self) -> None:
        self._phase = _Phase.GREETING
        self._send_own(ApiKey.API_VERSIONS, _VERSIONS_SPOKEN_BY_ALL, b"")

    def _end_stream(self, reason: str | None) -> None:
        """Nothing more will come. What came before counts first, such as why SASL failed."""
        error = self._target.unreachable(self._closed_by_peer() if reason is None else reason)
        if self._is_computing:
            self._ended = error
            self._stream.close()
        else:
            self._fail(error)

    def _closed_by_peer(self) -> str:
        if self._phase is _Phase.GREETING and not self._versions:
            return "it closed the connection; does the listener have another security protocol?"
        return "it closed the connection"

    # --- requests and answers --------------------------------------------------------------------

    def _send_own(self, api: ApiKey, version: int, body: bytes) -> None:
        self._write(api, version, body, self._ready_by_s, None)
        self._stream.send()

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
                mistaken = self._target.unreachable(call.mark.or_else)
                self._loop.call_soon(partial(call.when_done, mistaken))
                continue
            version = self._version(call)
            if version is None:
                theirs = self._versions.get(call.api, (0, -1))
                error = self._target.unreachable(
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
                self._loop.call_soon(partial(call.when_done, self._target.unreachable(reason)))
                continue
            self._write(call.api, version, body, deadline_s, call)
        if self._stream.unsent:
            self._stream.send()

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
        self._stream.unsent.append(_INT32.pack(len(head) + len(body)) + head + body)
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
            self._fail(self._target.unreachable(f"it refuses ApiVersions with {answer.error_code}"))
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
            self._loop.call_soon(partial(self._fail, self._target.unreachable(reason)))
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
            self._fail(self._target.unreachable(what))
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
        self._stream.close()
