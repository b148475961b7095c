"""One client's connection: frames in, requests to their handlers, answers out, in order.

How bytes come in: the loop's receive buffer is shared by all its connections. Frames that lie in
it whole are handled there, so a small produce is appended from where it was received. A frame
that does not gets a buffer of its own, of exactly its size, and the rest is received into that.

Kafka's rule is one request at a time and answers in order. We keep the order and relax the
other half: produce requests that follow each other are appended while the ones before them
still wait for the disk, so a pipelining producer shares syncs with itself.

Belongs to the thread of its loop. It changes loops once, at the first produce or fetch.
"""

import logging
import socket
import struct
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from cordwood.broker.net.answer import Answer
from cordwood.broker.net.event_loop import READABLE, WRITABLE, EventLoop
from cordwood.broker.net.outbox import Outbox, Piece
from cordwood.errors import FormatError, LimitExceededError

if TYPE_CHECKING:
    from cordwood.broker.net.dispatch import Dispatcher

logger = logging.getLogger(__name__)

_SIZE: Final = struct.Struct(">i")
_API_KEY: Final = struct.Struct(">h")
_PRODUCE: Final = 0
_LARGE_FRAME_BEGINNING: Final = 8 * 1024
_UNANSWERED_MAX: Final = 64  # produce requests under way on one connection


class _Frame:
    """A frame that is received in several parts, into a buffer of its own."""

    __slots__ = ("buffer", "filled", "is_granted", "size", "view")

    def __init__(self, buffer: bytearray, size: int) -> None:
        self.buffer = buffer
        self.size = size
        self.view = memoryview(buffer)[:size]
        self.filled = 0
        self.is_granted = False

    @property
    def is_whole(self) -> bool:
        return self.filled == self.size


class ClientConnection:
    """See the module. `close` may be called at any time and more than once."""

    __slots__ = (
        "_answers",
        "_backlog",
        "_closed",
        "_dispatcher",
        "_fd",
        "_frame",
        "_has_large_frames",
        "_interest",
        "_outbox",
        "_socket",
        "client_host",
        "last_active_s",
        "loop",
    )

    def __init__(
        self, connected: socket.socket, client_host: str, loop: EventLoop, dispatcher: "Dispatcher"
    ) -> None:
        self.loop = loop
        self.client_host = client_host
        self.last_active_s = loop.now_s()
        self._dispatcher = dispatcher
        self._socket = connected
        self._fd = connected.fileno()
        self._interest = READABLE
        self._outbox = Outbox(connected)
        self._answers: deque[Answer] = deque()
        self._backlog = bytearray()  # received, not yet handled; less than a receive buffer
        self._frame: _Frame | None = None
        self._has_large_frames = False
        self._closed = False

    def attach(self) -> None:
        """Take part in the loop: from here on the socket is listened to."""
        if self._closed:
            return
        self.loop.register(self._fd, self._interest, self._on_ready)
        self._resume()

    @property
    def is_idle(self) -> bool:
        """Nothing is under way in either direction."""
        return not self._answers and not self._outbox

    @property
    def is_owed(self) -> bool:
        """A request has come whose answer is not ready: it is not the client that is slow."""
        return bool(self._answers)

    @property
    def is_closed(self) -> bool:
        return self._closed

    @property
    def is_receiving(self) -> bool:
        """A large frame arrives: it holds memory that others may be waiting for."""
        frame = self._frame
        return frame is not None and frame.is_granted and not frame.is_whole

    # --- coming in ---------------------------------------------------------------------------

    def _on_ready(self, mask: int) -> None:
        try:
            if mask == READABLE and self._frame is None and not self._backlog:
                self._receive_afresh()
                return
            if mask & WRITABLE:
                self._flush()
                if not self._outbox:
                    self._resume_later()
            if mask & READABLE and not self._closed:
                self._receive()
        except BlockingIOError:
            return  # ready no longer; the loop says when it is
        except (FormatError, OSError) as error:
            self.close(str(error))
        except Exception:
            self._failed()

    def _receive_afresh(self) -> None:
        """Receive while nothing is left over from before: the usual case."""
        scratch = self.loop.scratch
        if self._has_large_frames:
            # Expect another, and receive no more than its beginning here: that has to be copied.
            scratch = scratch[:_LARGE_FRAME_BEGINNING]
        count = self._socket.recv_into(scratch)
        if not self._has_received(count):
            return
        is_first = not self._answers and not self._outbox
        if is_first and self._dispatcher.take_alone(self, scratch, count):
            return
        self._consume(scratch[:count])

    def _receive(self) -> None:
        frame = self._frame
        if frame is None and not self._backlog:
            self._receive_afresh()
            return
        if frame is not None and not frame.is_whole:
            self._receive_into(frame)
            return
        scratch, kept = self.loop.scratch, len(self._backlog)
        if frame is not None or kept >= len(scratch) // 2:
            # More than is worth keeping waits behind a request that is under way.
            self._stop_listening()
            return
        count = self._socket.recv_into(scratch[kept:])
        scratch[:kept] = self._backlog
        self._backlog = bytearray()
        if self._has_received(count):
            self._consume(scratch[: kept + count])

    def _receive_into(self, frame: _Frame) -> None:
        if not frame.is_granted:
            self._look_for_the_end()
            return
        count = self._socket.recv_into(frame.view[frame.filled :])
        if not self._has_received(count):
            return
        frame.filled += count
        if frame.is_whole:
            self._go_on()

    def _look_for_the_end(self) -> None:
        """While memory is waited for, all there is to notice is that the client went away."""
        if not self._socket.recv(1, socket.MSG_PEEK):
            self.close("")
            return
        self._stop_listening()

    def _stop_listening(self) -> None:
        """Leave what comes in the socket. Who is told of more all the same is told of the end."""
        if not self._interest & READABLE:
            self.close("")
            return
        self._set_interest(self._interest & ~READABLE)

    def _has_received(self, count: int) -> bool:
        if not count:
            self.close("")
            return False
        self.last_active_s = self.loop.turn_s
        self._dispatcher.metrics.received(count)
        return True

    def _go_on(self) -> None:
        """Handle what was received before and could not be handled then."""
        frame = self._frame
        if frame is not None:
            if not frame.is_whole:
                return
            if not self._may_start(frame.view):
                return
            if self._moves(frame.view):
                return
            self._frame = None
            try:
                if not self._dispatcher.take_quickly(self, frame.view, 0, frame.size):
                    self._handle(frame.view)
            finally:
                self._dispatcher.memory.give_back(frame.size)
            if _API_KEY.unpack_from(frame.view)[0] == _PRODUCE:
                # Its records are in the log by now; what others ask for may still be looked at.
                self.loop.frames.give_back(frame.buffer)
        elif self._backlog and not self._closed:
            backlog, self._backlog = self._backlog, bytearray()
            self._consume(memoryview(backlog))
        # Also where what was kept ended in the beginning of a large frame, which goes on coming.
        if (
            not self._closed
            and not self._interest & READABLE
            and (self._frame is None or self.is_receiving)
        ):
            self._set_interest(self._interest | READABLE)

    def _consume(self, data: memoryview) -> None:
        """Handle the frames in `data`; keep what is left of it."""
        at, end = 0, len(data)
        while end - at >= _SIZE.size and not self._closed:
            (size,) = _SIZE.unpack_from(data, at)
            limit = self._dispatcher.frame_bytes_max
            if not 0 < size <= limit:
                raise LimitExceededError("request", size=size, limit=limit)
            begin = at + _SIZE.size
            frame_end = begin + size
            frame = data[begin:frame_end]
            if (
                self._answers or self._outbox or self._dispatcher.is_stopping
            ) and not self._may_start(frame):
                break  # a large one too: it would hold memory until its turn comes
            if frame_end > end:
                if size > len(self.loop.scratch) // 2:
                    self._has_large_frames = True
                    self._begin_frame(size, frame)
                    return
                self._has_large_frames = False
                break
            if not self._dispatcher.take_quickly(self, data, begin, frame_end):
                if self._moves(data[at:]):
                    return
                self._handle(frame)
            at = frame_end
        if at < end and not self._closed:
            self._backlog = bytearray(data[at:])

    def _begin_frame(self, size: int, first: memoryview) -> None:
        frame = _Frame(self.loop.frames.take(size), size)
        frame.view[: len(first)] = first
        frame.filled = len(first)
        self._frame = frame
        loop = self.loop
        frame.is_granted = self._dispatcher.memory.take(
            size, lambda: loop.call_soon(lambda: self._granted(frame))
        )

    def _granted(self, frame: _Frame) -> None:
        if self._closed:
            self._dispatcher.memory.give_back(frame.size)
            return
        frame.is_granted = True
        self.last_active_s = self.loop.now_s()  # the wait was not the client's fault
        self._set_interest(self._interest | READABLE)

    # --- one request -------------------------------------------------------------------------

    def _may_start(self, frame: memoryview) -> bool:
        """Whether the next request may be started: its turn has come, or it is pipelined.

        Not while answers wait to be sent: a client that does not read them gets no more.
        """
        answers = self._answers
        if self._outbox:
            return False
        if not answers:
            return not self._dispatcher.is_stopping
        if len(frame) < _API_KEY.size or len(answers) >= _UNANSWERED_MAX:
            return False
        (api_key,) = _API_KEY.unpack_from(frame)
        return answers[-1].allows_next and answers[-1].header.api_key == api_key

    def _moves(self, data: memoryview) -> bool:
        """Whether this connection goes on in the loop for data, beginning with `data`."""
        frame = self._frame
        at = 0 if frame is not None else _SIZE.size
        if len(data) < at + _API_KEY.size:
            return False
        (api_key,) = _API_KEY.unpack_from(data, at)
        target = self._dispatcher.loop_for(api_key)
        if target is None or target is self.loop:
            return False
        self.loop.unregister(self._fd)
        if frame is None:
            self._backlog = bytearray(data)
        self._dispatcher.moved(self, self.loop, target)
        self.loop = target
        target.call_soon(self.attach)
        return True

    def expect(self, answer: Answer) -> None:
        """An answer that will come leaves in its turn."""
        self._answers.append(answer)

    def _handle(self, frame: memoryview) -> None:
        answer = self._dispatcher.begin(self, frame)
        self._answers.append(answer)
        self._dispatcher.run(answer, frame)

    # --- going out ---------------------------------------------------------------------------

    def answered(self, answer: Answer) -> None:
        """An answer is ready: it leaves with those behind it that are, if its turn has come."""
        if self._closed:
            return
        answers, outbox = self._answers, self._outbox
        if not answers or answers[0] is not answer:
            return
        was_empty = not outbox
        if was_empty and len(answers) == 1 and len(answer.pieces) == 1:
            answers.popleft()
            self._dispatcher.finished(answer)
            self._send_alone(answer.pieces[0])
            self._resume_later()
            return
        while answers and answers[0].is_ready:
            first = answers.popleft()
            for piece in first.pieces:
                outbox.add(piece)
            self._dispatcher.finished(first)
        if was_empty:
            self._flush_or_close()
        self._resume_later()

    def send_alone(self, answer: Answer, frame: bytes) -> bool:
        """Send the answer at once, if it is the only one there is; False: nothing was done."""
        answers = self._answers
        if len(answers) != 1 or answers[0] is not answer or self._outbox or self._closed:
            return False
        answers.popleft()
        self._send_alone(frame)
        if self._backlog or self._frame is not None:
            self._resume_later()
        return True

    def send_together(self, answers: Sequence[Answer], frames: bytes) -> bool:
        """Send the frames of `answers`, if it is their turn; False: nothing was done.

        In one call, for each may have to wake the client.
        """
        queue = self._answers
        if self._closed or self._outbox or len(queue) < len(answers):
            return False
        if any(first is not second for first, second in zip(queue, answers, strict=False)):
            return False
        for _ in answers:
            queue.popleft()
        self._send_alone(frames)
        if queue and queue[0].is_ready:
            self.answered(queue[0])
        elif self._backlog or self._frame is not None:
            self._resume_later()
        return True

    def _send_alone(self, piece: Piece) -> None:
        """Send the one piece there is; what the socket does not take stays in the outbox."""
        if not isinstance(piece, bytes):
            self._outbox.add(piece)
            self._flush_or_close()
            return
        try:
            sent = self._socket.send(piece)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self.close(str(error))
            return
        self._dispatcher.metrics.sent(sent)
        if sent < len(piece):
            self._outbox.add(piece[sent:])
            self._set_interest(self._interest | WRITABLE)

    def _flush_or_close(self) -> None:
        try:
            self._flush()
        except OSError as error:
            self.close(str(error))

    def _resume_later(self) -> None:
        """Not at once: this may run inside the handling of the frame before."""
        if self._backlog or self._frame is not None:
            self.loop.call_soon(self._resume)

    def _resume(self) -> None:
        if self._closed:
            return
        try:
            self._go_on()
        except (FormatError, OSError) as error:
            self.close(str(error))
        except Exception:
            self._failed()

    def _flush(self) -> None:
        sent = self._outbox.send()
        if sent:
            self.last_active_s = self.loop.now_s()
            self._dispatcher.metrics.sent(sent)
        wants = WRITABLE if self._outbox else 0
        self._set_interest(self._interest & ~WRITABLE | wants)

    def _set_interest(self, interest: int) -> None:
        if interest != self._interest:
            self._interest = interest
            self.loop.modify(self._fd, interest)

    # --- the end -----------------------------------------------------------------------------

    def _failed(self) -> None:
        """Our own fault: say where, and do not leave the client waiting."""
        logger.exception("%s: a request failed", self.client_host)
        self.close("the broker failed")

    def close(self, reason: str) -> None:
        """Let go of the client. `reason` is logged, where it is anyone's fault."""
        if self._closed:
            return
        self._closed = True
        if reason:
            logger.info("%s: connection closed: %s", self.client_host, reason)
        self.loop.unregister(self._fd)
        self._socket.close()
        frame, self._frame = self._frame, None
        if frame is not None and frame.is_granted:
            self._dispatcher.memory.give_back(frame.size)
        answers = list(self._answers)
        self._answers.clear()
        self._backlog = bytearray()
        self._dispatcher.disconnected(self, answers)
