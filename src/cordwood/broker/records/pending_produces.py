"""Produce requests whose records are written and wait for the disk.

One sync usually answers many requests. A request waits at most for the timeout that its client
set; the timeouts are checked four times a second.
"""

from collections.abc import Iterable
from typing import Final, Protocol

from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.records.log_watch import LogWatch
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import Offset

_TIMEOUT_CHECK_S: Final = 0.25


class ProduceReply(Protocol):
    """The answers to requests that were appended together."""

    def refuse(self, code: ErrorCode, log: PartitionLog | None = None) -> None:
        """Answer with `code` for the records in `log`, or for all that had no error so far."""
        ...

    def send(self) -> None:
        """Answer. Called once."""
        ...


class PendingProduce:
    """A group of requests in one log, or one request in several logs. See `PendingProduces`."""

    __slots__ = ("deadline_s", "logs_left", "reply")

    def __init__(self, reply: ProduceReply, deadline_s: float) -> None:
        self.reply = reply
        self.deadline_s = deadline_s
        self.logs_left = 0

    def promise_settled(self, log: PartitionLog) -> None:
        """The records in `log` are durable, or never will be."""
        if not self.logs_left:
            return  # timed out before
        if log.state.failure is not None:
            self.reply.refuse(ErrorCode.kafka_storage_error, log)
        elif log.is_closed:
            self.reply.refuse(ErrorCode.not_leader_or_follower, log)
        self.logs_left -= 1
        if not self.logs_left:
            self.reply.send()

    def time_out(self) -> None:
        self.logs_left = 0
        self.reply.refuse(ErrorCode.request_timed_out)
        self.reply.send()


class PendingProduces:
    """All produce requests that wait for the disk. Belongs to the data loop."""

    def __init__(self, loop: EventLoop, watch: LogWatch) -> None:
        self._loop = loop
        self._watch = watch
        self._waiting: list[PendingProduce] = []
        self._is_checking = False

    def add(
        self, reply: ProduceReply, ends: Iterable[tuple[PartitionLog, Offset]], timeout_ms: int
    ) -> None:
        """Send `reply` when each log has promised everything below its end offset."""
        pending = PendingProduce(reply, self._loop.now_s() + max(timeout_ms, 0) / 1000)
        self._waiting.append(pending)
        for log, end in ends:
            pending.logs_left += 1
            self._watch.await_promise(log, end, pending)
        if not self._is_checking:
            self._is_checking = True
            self._loop.call_later(_TIMEOUT_CHECK_S, self._check_timeouts)

    def _check_timeouts(self) -> None:
        now_s = self._loop.now_s()
        for pending in self._waiting:
            if pending.logs_left and pending.deadline_s <= now_s:
                pending.time_out()
        self._waiting = [pending for pending in self._waiting if pending.logs_left]
        self._is_checking = bool(self._waiting)
        if self._is_checking:
            self._loop.call_later(_TIMEOUT_CHECK_S, self._check_timeouts)
