"""One client's connection: frames in, requests to the router, answers out, in order.

How bytes come in: all connections of a loop share its receive buffer. Frames that lie in it whole
are handled there, so a small produce is appended from where it was received; in the data loop,
those of several connections are handled together (`gathered_frames`). A frame that does not fit
gets a buffer of its own, of exactly its size, and the rest is received into that.

Kafka handles one request at a time and answers in order. We keep the order and relax the rest:
produce requests that follow each other are appended while earlier ones still wait for the disk,
so a pipelining producer shares syncs with itself.

How a connection ends: every request that has arrived whole is carried out, also when the client
has closed its side (`_is_ended`) or is gone altogether (`_lose`). Then the connection closes.
Requests that wait for something to happen, such as a fetch at the end of a log, wait no longer.

A client that has used up its quota is muted for a while: its answers leave, but nothing is read
from it and no request of it is started, neither those that have arrived already. A timer ends
that. If the client closes its side meanwhile, its last requests wait for a few seconds at most.

A connection belongs to the thread of its loop. It changes loops once, at the first produce or
fetch.
"""

import logging
import os
import socket
import struct
from collections import deque
from time import monotonic
from typing import TYPE_CHECKING, Final

from cordwood.broker.net.connections.connection_host import ConnectionHost
from cordwood.broker.net.loop.event_loop import (
    BROKEN,
    HUNG_UP,
    READABLE,
    WRITABLE,
    EventLoop,
    Timer,
)
from cordwood.broker.net.memory.large_frame import LargeFrame
from cordwood.broker.net.requests.answer import Answer, take_ready, tell_that_client_left
from cordwood.broker.net.requests.request_metrics import ThreadCounts
from cordwood.broker.net.requests.session import Session
from cordwood.broker.net.rows.gathered_frames import SMALL_BYTES_MAX, GatheredFrames
from cordwood.broker.net.rows.socket_rows import SocketRows
from cordwood.broker.net.sockets.outbox import Outbox
from cordwood.broker.net.sockets.registration import Registration
from cordwood.errors import FormatError, LimitExceededError
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.broker.net.sockets.tls_outbox import TlsOutbox
    from cordwood.broker.net.sockets.tls_socket import TlsSocket

logger = logging.getLogger(__name__)

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4
_API_KEY: Final = struct.Struct(">h")
_FRAME_BEGINNING: Final = struct.Struct(">ih")  # the size, and the API key
_PRODUCE: Final = int(ApiKey.PRODUCE)
_TLS_HELLO: Final = 0x1603  # what the first message of a TLS client begins with
_LARGE_FRAME_BEGINNING: Final = 8 * 1024
_LARGE_FRAMES_MAX: Final = 4  # in a turn; then other connections have theirs
_UNANSWERED_MAX: Final = 64  # produce requests under way on one connection
_HUNG_UP_PAUSE_S_MAX: Final = 10.0  # then a muted client that has left is forgotten
_GONE: Final = (ConnectionError, TimeoutError)  # errors of a socket whose other side is gone


class ClientConnection:
    """See the module. `close` may be called at any time and more than once."""

    __slots__ = (
        "_backlog",
        "_frame",
        "_gathered",
        "_handled",
        "_has_large_frames",
        "_has_plain_socket",
        "_host",
        "_is_ended",
        "_outbox",
        "_registration",
        "_socket",
        "_unmuting",
        "answers",
        "counts",
        "fd",
        "is_closed",
        "is_in_row",
        "last_active_s",
        "loop",
        "muted_until_s",
        "rows",
        "session",
    )

    def __init__(
        self,
        connected: "socket.socket | TlsSocket",
        session: Session,
        loop: EventLoop,
        host: ConnectionHost,
    ) -> None:
        self.loop = loop
        self.session = session
        self.last_active_s = loop.now_s()
        self._host = host
        self.counts: ThreadCounts  # of the loop's thread
        self._socket = connected
        self._registration: Registration
        self._outbox: Outbox | TlsOutbox
        self._has_plain_socket = isinstance(connected, socket.socket)
        self.fd = -1
        if isinstance(connected, socket.socket):
            self.fd = connected.fileno()
            self._registration = Registration(connected.fileno(), self._on_ready, loop)
            self._outbox = Outbox(connected)
        else:
            # Not at the top: a broker without TLS does not load it.
            from cordwood.broker.net.sockets import tls_outbox, tls_registration

            self._registration = tls_registration.TlsRegistration(connected, self._on_ready, loop)
            self._outbox = tls_outbox.TlsOutbox(connected)
        self.answers: deque[Answer] = deque()
        self._backlog = bytearray()  # received, not yet handled; less than a receive buffer
        self._frame: LargeFrame | None = None  # that is received
        self._handled: LargeFrame | None = None  # that was started
        self._has_large_frames = False
        self._is_ended = False  # no more bytes will come
        self.is_closed = False
        self.muted_until_s = 0.0  # by the loop's clock; 0: not muted
        self._unmuting: Timer | None = None
        self._gathered: GatheredFrames | None = None  # that small requests are left to
        self.rows: SocketRows  # of the loop, if small requests are left to `_gathered`
        self.is_in_row = False

    def attach(self) -> None:
        """Register with the loop, which reports from now on what the socket is ready for."""
        if self.is_closed:
            return
        self.counts = self._host.metrics.mine()
        router = self._host.router
        if self._has_plain_socket and self.loop is router.data_loop:
            self._gathered = router.gathered
            if self._gathered is not None:
                self.rows = self._gathered.rows
        self._registration.enter(self.loop)
        self._resume(self.loop)

    @property
    def is_idle(self) -> bool:
        """No request and no answer is under way."""
        return not self.answers and not self._outbox.pieces

    @property
    def is_owed(self) -> bool:
        """The client waits for us, for an answer or until it is read: it is not the slow side."""
        return bool(self.answers or self.muted_until_s)

    @property
    def is_receiving(self) -> bool:
        """A large frame is arriving: it holds memory that others may be waiting for."""
        frame = self._frame
        return frame is not None and frame.is_granted and not frame.is_whole

    def is_too_slow(self, now_s: float) -> bool:
        """A large frame hardly arrives, and others wait for its memory. Asked repeatedly."""
        frame = self._frame
        return frame is not None and self.is_receiving and frame.is_too_slow(now_s)

    # --- receiving ---------------------------------------------------------------------------

    def _on_ready(self, mask: int) -> None:
        loop = self.loop
        if self.is_in_row:
            self.leave_row()
        try:
            if (
                mask == READABLE
                and self._registration.interest == READABLE
                and self._frame is None
                and not self._backlog
            ):
                self._receive()  # the usual case
                if self._has_large_frames and self._may_receive_in(loop):
                    self._receive_frames(loop)
            else:
                self._on_unusual(mask)
        except BlockingIOError:
            return  # no longer ready; the loop reports when it is again
        except _GONE:
            self._break_off()
        except (FormatError, OSError) as error:
            self.close(str(error))
        except Exception:
            self._failed()

    def receive_failed(self, code: int) -> None:
        """A receive in the row found that the client sends no more (0), or failed so."""
        self.leave_row()
        error = OSError(code, os.strerror(code))
        try:
            if not code:
                self._end()
            elif isinstance(error, _GONE):
                self._break_off()
            else:
                self.close(str(error))
        except Exception:
            self._failed()

    def _break_off(self) -> None:
        """The socket is broken; it gave all bytes that it had before."""
        self._is_ended = True
        self._registration.stop_listening()
        self._lose()

    def _on_unusual(self, mask: int) -> None:
        if mask & WRITABLE:
            self._send_more()
        if mask & HUNG_UP and self.muted_until_s:
            self._hung_up()
        if mask & READABLE and not self.is_closed:
            if not self._registration.is_listening:
                # Only a broken connection is reported without being asked for, unless it was
                # muted in this very turn.
                if mask & BROKEN or not self.muted_until_s:
                    self._lose()
            elif self._frame is None and not self._backlog:
                self._receive()
            elif self.is_receiving:
                self._receive_frames(self.loop)
            else:
                self._receive_more()

    def _receive_frames(self, loop: EventLoop) -> None:
        """Receive the rest of a large frame, and large frames behind it that have arrived.

        A client that sends large frames sends them in a row, and a turn of the loop costs as much
        as a frame: so several share one. `BlockingIOError`: nothing more has arrived.
        """
        for _ in range(_LARGE_FRAMES_MAX):
            frame = self._frame
            if frame is None or not self.is_receiving:
                return
            self._receive_into(frame)
            if self._may_receive_in(loop) and self._frame is None and not self._backlog:
                self._receive()
            if not self._may_receive_in(loop):
                return

    def _may_receive_in(self, loop: EventLoop) -> bool:
        """False if the connection has moved: it belongs to another thread then."""
        return (
            self.loop is loop
            and not self.is_closed
            and not self._is_ended
            and self._registration.is_listening
        )

    def _receive(self) -> None:
        """Receive while nothing is left over from before."""
        loop, gathered = self.loop, self._gathered
        scratch = loop.scratch if gathered is None else gathered.room
        if self._has_large_frames:
            # Expect another, and receive only its beginning here, because that has to be copied.
            scratch = scratch[:_LARGE_FRAME_BEGINNING]
        count = self._socket.recv_into(scratch)
        if not count:
            self._end()
            return
        self.last_active_s = loop.turn_s
        self.counts.received += count
        if (
            gathered is not None
            # A limit below what is small has to be compared with the size of each request.
            and count <= SMALL_BYTES_MAX <= self.session.frame_bytes_max
            and self.session.gate is None
            and not (self.answers or self._outbox.pieces or self.muted_until_s)
        ):
            router = self._host.router
            size, api_key = _FRAME_BEGINNING.unpack_from(scratch)
            if api_key == _PRODUCE and loop.ready_count > 1:
                self.is_in_row = not (self._is_ended or self._registration.is_lost)
                self.rows.make_room(self.fd)
                gathered.add(self, count)
                return
            take = router.take_frames.get(api_key)
            if (
                take is not None
                and size == count - _SIZE_BYTES > _API_KEY.size
                and not (router.is_stopping or router.quotas.is_set)
                and take(self, scratch, _SIZE_BYTES, count)
            ):
                return
        self._consume(scratch, count)

    def start_gathered(self, data: memoryview) -> None:
        """Start the requests in `data`, which was received in this turn. Never raises."""
        self.leave_row()
        if self.is_closed:
            return
        try:
            self._consume(data, len(data))
        except (FormatError, OSError) as error:
            self.close(str(error))
        except Exception:
            self._failed()

    def leave_row(self) -> None:
        """Something else than a small request happens, or is going to."""
        if self.is_in_row:
            self.is_in_row = False
            self.rows.forget(self.fd)

    def _receive_more(self) -> None:
        """Receive the rest of a large frame, or what follows an unhandled backlog."""
        frame = self._frame
        if frame is not None and not frame.is_whole:
            self._receive_into(frame)
            return
        scratch, kept = self.loop.scratch, len(self._backlog)
        if frame is not None or kept >= len(scratch) // 2:
            # Enough waits behind the request that is under way. The rest stays in the socket.
            self._registration.stop_listening()
            return
        count = self._socket.recv_into(scratch[kept:])
        if not count:
            self._end()
            return
        scratch[:kept] = self._backlog
        self._backlog = bytearray()
        self.last_active_s = self.loop.turn_s
        self._host.metrics.received(count)
        self._consume(scratch, kept + count)

    def _receive_into(self, frame: LargeFrame) -> None:
        if not frame.is_granted:
            # Nothing is read before there is memory; only a client that has left is noticed.
            if self._socket.recv(1, socket.MSG_PEEK):
                self._registration.stop_listening()
            else:
                self._end()
            return
        count = self._socket.recv_into(frame.free_view)
        if not count:
            self._end()
            return
        self.last_active_s = self.loop.turn_s
        self._host.metrics.received(count)
        frame.filled += count
        if frame.is_whole:
            self._go_on()
        elif frame.needs_memory:
            self._request_memory(frame)

    # --- clients that leave ------------------------------------------------------------------

    def _end(self) -> None:
        """The client sends no more. It may still read the answers to what it has sent."""
        self._is_ended = True
        self._registration.stop_listening()
        tell_that_client_left(self.answers)
        self._go_on()

    def _lose(self) -> None:
        """The client is gone. What it has sent is carried out; answers are dropped."""
        self._registration.lose()
        self._outbox.pieces.clear()
        tell_that_client_left(self.answers)
        self._resume_later()

    # --- requests ----------------------------------------------------------------------------

    def _consume(self, data: memoryview, end: int) -> None:
        """Start the requests in ``data[:end]`` and keep the rest of it."""
        at, host = 0, self._host
        router = host.router
        while end - at >= _SIZE_BYTES and not self.is_closed:
            (size,) = _SIZE.unpack_from(data, at)
            if not 0 < size <= self.session.frame_bytes_max:
                raise _refused_size(size, self.session.frame_bytes_max)
            begin = at + _SIZE_BYTES
            frame_end = begin + size
            if (
                self.answers or self._outbox.pieces or router.is_stopping or self.muted_until_s
            ) and not (self._may_start(data[begin : min(frame_end, end)])):
                break  # a large one too: it would hold memory until its turn comes
            if frame_end > end:
                # With its size it must fit half the buffer: from there on nothing is received
                # behind a backlog.
                self._has_large_frames = frame_end - at > len(self.loop.scratch) // 2
                if not self._has_large_frames:
                    break
                loop = self.loop
                frame = LargeFrame(size, data[begin:end], loop.frames, host.memory, loop.turn_s)
                self._frame = frame
                self._request_memory(frame)
                return
            if not router.start(self, data, begin, frame_end):
                self._backlog = bytearray(data[at:end])
                self._move()  # after this the connection belongs to another thread
                return
            at = frame_end
        if at < end and not self.is_closed:
            self._backlog = bytearray(data[at:end])

    def _may_start(self, frame: memoryview) -> bool:
        """Whether the next request may be started: its turn has come, or it is pipelined.

        Not while answers wait to be sent: a client that does not read them gets no more.
        """
        if self._outbox.pieces or self.muted_until_s:
            return False
        answers = self.answers
        if not answers:
            return not self._host.router.is_stopping
        return (
            len(answers) < _UNANSWERED_MAX
            and answers[-1].api_key == _PRODUCE
            and not answers[-1].is_alone
            and _is_produce(frame)
        )

    def _go_on(self) -> None:
        """Handle what was received before and could not be handled then."""
        frame, loop = self._frame, self.loop
        if frame is not None:
            if frame.is_whole and self._may_start(frame.view):
                self._start_large(frame)
        elif self._backlog and not self.is_closed:
            backlog, self._backlog = self._backlog, bytearray()
            self._consume(memoryview(backlog), len(backlog))
        if self.is_closed or self.loop is not loop:
            return
        if self._is_ended or self._registration.is_lost:
            tell_that_client_left(self.answers)
        is_muted = self.muted_until_s > 0
        if self._is_ended:
            if self.is_idle and not (is_muted and (self._backlog or self._frame is not None)):
                self.close("")  # what is left is not a whole request
        # The backlog may have ended with the beginning of a large frame, whose rest is to come.
        elif not is_muted and (self._frame is None or self.is_receiving):
            self._registration.listen()

    def _request_memory(self, frame: LargeFrame) -> None:
        loop = self.loop
        frame.request_memory(lambda: loop.call_soon(lambda: self._granted(frame)))

    def _granted(self, frame: LargeFrame) -> None:
        if self.is_closed:
            return
        self.last_active_s = self.loop.now_s()  # the client did not cause the wait
        frame.grant(self.last_active_s)
        if not self.muted_until_s:
            self._registration.listen()

    def _start_large(self, frame: LargeFrame) -> None:
        self._frame = None
        self._handled = frame  # it keeps its memory until it was answered, or the connection ends
        if not self._host.router.start(self, frame.view, 0, frame.size):
            self._frame, self._handled = frame, None
            self._move()  # after this the frame belongs to another thread
        elif _is_produce(frame.view) and not (self.answers and self.answers[-1].is_alone):
            # Its records are in the log by now. Other handlers may still look at theirs.
            self._handled = None
            frame.release()
            frame.recycle(self.loop.frames)

    def _move(self) -> None:
        """Continue in the data loop, with what was received so far."""
        target = self._host.router.data_loop
        self._registration.leave()
        self._host.registry.move(self, target)
        self.loop = target
        target.call_soon(self.attach)

    # --- quotas ------------------------------------------------------------------------------

    @property
    def throttle_ms(self) -> int:
        """How long the client is muted from now on; answers tell it."""
        left_s = self.muted_until_s - self.loop.now_s() if self.muted_until_s else 0.0
        return int(left_s * 1000) + 1 if left_s > 0 else 0

    def mute(self, pause_s: float) -> None:
        """Read nothing and start no request for so long, and at least as long as before."""
        until_s = self.loop.now_s() + pause_s
        if not self.is_closed and until_s > self.muted_until_s:
            self.leave_row()
            self._mute_until(until_s, pause_s)
            if not self._is_ended and not self._registration.is_lost:
                self._registration.await_hang_up()
            else:
                self._registration.stop_listening()

    def _mute_until(self, until_s: float, pause_s: float) -> None:
        if self._unmuting is not None:
            self._unmuting.cancel()
        self.muted_until_s = until_s
        self._unmuting = self.loop.call_later(pause_s, self.unmute)

    def _hung_up(self) -> None:
        """The client closed its side. What it sent before is handled soon, and then it ends."""
        self._registration.stop_awaiting_hang_up()
        if self.throttle_ms > _HUNG_UP_PAUSE_S_MAX * 1000:
            until_s = self.loop.now_s() + _HUNG_UP_PAUSE_S_MAX
            self._mute_until(until_s, _HUNG_UP_PAUSE_S_MAX)

    def unmute(self) -> None:
        """The pause is over, or the quota was changed."""
        if self.is_closed or not self.muted_until_s:
            return
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None
        self.muted_until_s = 0.0
        self.last_active_s = self.loop.now_s()  # the client did not cause the wait
        self._registration.stop_awaiting_hang_up()
        self._resume(self.loop)

    # --- sending -----------------------------------------------------------------------------

    def send_ready(self) -> None:
        """Send the answers at the head of the queue that are ready, in one call if possible."""
        answers = self.answers
        if self.is_closed or not answers or not answers[0].is_ready:
            return
        answer = answers[0]
        if len(answer.pieces) == 1:
            (piece,) = answer.pieces
            count = self.send_alone(answer, piece) if isinstance(piece, bytes) else -1
            if count >= 0:
                latencies_s = (monotonic() - answer.started_s,)
                self.counts.answered(answer.api_key, latencies_s, count)
                return
        metrics = self._host.metrics
        pieces = take_ready(answers, metrics)
        if self._handled is not None and not answers:  # no request is started behind its own
            self._handled.release()
            self._handled = None
        outbox = self._outbox
        if outbox.pieces:
            outbox.pieces.extend(pieces)  # the loop reports when the socket takes more
            return
        if not self._registration.is_lost:
            try:
                metrics.sent(outbox.send(pieces))
            except _GONE:
                self._lose()
                return
            except OSError as error:
                self.close(str(error))
                return
            self.last_active_s = self.loop.turn_s
            if outbox.pieces:
                self._registration.await_room()
        if self._backlog or self._frame is not None or self._is_ended:
            self._resume_later()

    def send_alone(self, answer: Answer, frame: bytes) -> int:
        """Send `frame` for the only answer, if nothing is to be done before or after it.

        The number of bytes that were sent, which the caller counts; -1: nothing was done.
        """
        answers = self.answers
        if (
            len(answers) != 1
            or answers[0] is not answer
            or not self._has_plain_socket
            or self._outbox.pieces
            or self._backlog
            or self._is_ended
            or self._frame is not None
            or self._handled is not None
            or self._registration.is_lost
            or self.is_closed
        ):
            return -1
        answers.clear()
        try:
            count = self._socket.send(frame)
        except BlockingIOError:
            count = 0
        except _GONE:
            self._lose()
            return 0
        except OSError as error:
            self.close(str(error))
            return 0
        self.last_active_s = self.loop.turn_s
        if count < len(frame):
            self._send_rest(frame, count)
        return count

    def send_failed(self, frame: bytes, result: int) -> int:
        """A row sent less than all of `frame`, the only answer: `result` bytes, or an error's code.

        The code is negative. Returns the number of bytes that were sent.
        """
        self.leave_row()
        self.answers.clear()
        error = OSError(-result, os.strerror(-result)) if result < 0 else None
        if error is None or isinstance(error, BlockingIOError):
            count = max(result, 0)
            self.last_active_s = self.loop.turn_s
            self._send_rest(frame, count)
            return count
        if isinstance(error, _GONE):
            self._lose()
        else:
            self.close(str(error))
        return 0

    def _send_rest(self, frame: bytes, count: int) -> None:
        self._outbox.pieces.append(memoryview(frame)[count:])
        self._registration.await_room()

    def _send_more(self) -> None:
        """Send pieces that the socket did not take before."""
        try:
            sent = self._outbox.send()
        except _GONE:
            self._lose()
            return
        if sent:
            self.last_active_s = self.loop.turn_s
            self._host.metrics.sent(sent)
        if not self._outbox.pieces:
            self._registration.stop_awaiting_room()
            if self._backlog or self._frame is not None or self._is_ended:
                self._resume_later()

    def _resume_later(self) -> None:
        """Not at once: this may run while the frame before is being handled."""
        loop = self.loop
        loop.call_soon(lambda: self._resume(loop))

    def _resume(self, loop: EventLoop) -> None:
        """Continue in `loop`, unless the connection has moved to another thread meanwhile."""
        if self.is_closed or self.loop is not loop:
            return
        try:
            self._go_on()
        except (FormatError, OSError) as error:
            self.close(str(error))
        except Exception:
            self._failed()

    # --- closing -----------------------------------------------------------------------------

    def _failed(self) -> None:
        """A bug of ours: log it, and close the connection instead of leaving the client waiting."""
        logger.exception("%s: a request failed", self.session.client_host)
        self.close("the broker failed")

    def close(self, reason: str) -> None:
        """Disconnect the client. `reason` is logged unless it is empty."""
        if self.is_closed:
            return
        self.is_closed = True
        if reason:
            logger.info("%s: connection closed: %s", self.session.client_host, reason)
        if self._unmuting is not None:
            self._unmuting.cancel()
        self.leave_row()
        self._registration.end()
        self._socket.close()
        for frame in (self._frame, self._handled):
            if frame is not None:
                frame.release()
        self._frame = self._handled = None
        answers, self.answers = self.answers, deque()
        self._backlog = bytearray()
        self._host.registry.remove(self)
        tell_that_client_left(answers)


def _refused_size(size: int, limit: int) -> FormatError:
    if size >> 16 == _TLS_HELLO:
        return FormatError("the client speaks TLS, and this listener does not")
    return LimitExceededError("request", size=size, limit=limit)


def _is_produce(frame: memoryview) -> bool:
    return len(frame) >= _API_KEY.size and _API_KEY.unpack_from(frame)[0] == _PRODUCE
