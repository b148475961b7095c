"""Produce requests whose records are written and wait for the disk.

One sync usually answers many requests. A request waits at most for the timeout that its client
set; the timeouts are checked four times a second.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, Protocol

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.cluster_partitions import AppendedEnd, committed_refusal
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset

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

    __slots__ = ("_table", "deadline_s", "logs_left", "reply")

    def __init__(self, reply: ProduceReply, deadline_s: float, table: PartitionTable) -> None:
        self.reply = reply
        self.deadline_s = deadline_s
        self.logs_left = 0
        self._table = table

    def promise_settled(self, log: PartitionLog) -> None:
        """The records in `log` are durable, or never will be."""
        if not self.logs_left:
            return  # timed out before
        state = log.state
        if state.failure is not None:
            self.reply.refuse(ErrorCode.kafka_storage_error, log)
        elif state.is_closed:
            self.reply.refuse(ErrorCode.not_leader_or_follower, log)
        elif self._table.cluster is not None:
            replica = self._table.replica_of(log)
            code = None if replica is None else committed_refusal(replica)
            if code is not None:
                self.reply.refuse(code, log)
        self._log_done()

    def promise_broken(self, log: PartitionLog) -> None:
        """Another broker leads `log` now, which may have the records or not."""
        if self.logs_left:
            self.reply.refuse(ErrorCode.not_leader_or_follower, log)
            self._log_done()

    def send_early(self, send_part: Callable[[], None]) -> None:
        """Everything is durable, unless there is another log, or it was timed out before."""
        if self.logs_left == 1:
            send_part()

    def _log_done(self) -> None:
        self.logs_left -= 1
        if not self.logs_left:
            self.reply.send()

    def time_out(self) -> None:
        self.logs_left = 0
        self.reply.refuse(ErrorCode.request_timed_out)
        self.reply.send()


class PendingProduces:
    """All produce requests that wait for the disk. Belongs to the data loop."""

    def __init__(self, loop: EventLoop, watch: LogWatch, table: PartitionTable) -> None:
        self._table = table
        self._loop = loop
        self._watch = watch
        self._waiting: list[PendingProduce] = []
        self._is_checking = False

    def add(
        self,
        reply: ProduceReply,
        ends: Iterable[AppendedEnd],
        timeout_ms: int,
        send_part: Callable[[], None] | None = None,
    ) -> None:
        """Send `reply` when each log has promised everything below its end offset.

        In a cluster: when the other replicas have it too, in the same leadership.

        If it is for one log without other replicas, `send_part` may be called shortly before that.
        """
        pending = PendingProduce(reply, self._loop.now_s() + max(timeout_ms, 0) / 1000, self._table)
        self._waiting.append(pending)
        appended = list(ends)
        pending.logs_left = len(appended)
        for log, end, led_in in appended:
            if led_in is None:
                when_kept = None
                if send_part is not None and self._table.cluster is None:
                    when_kept = partial(pending.send_early, send_part)
                self._watch.await_promise(log, end, pending, when_kept)
            else:
                self._await_committed(pending, log, end, led_in)
        if not self._is_checking:
            self._is_checking = True
            self._loop.call_later(_TIMEOUT_CHECK_S, self._check_timeouts)

    def _await_committed(
        self, pending: PendingProduce, log: PartitionLog, end: Offset, led_in: LeaderEpoch
    ) -> None:
        def done(is_committed: bool) -> None:
            if is_committed:
                pending.promise_settled(log)
            else:
                pending.promise_broken(log)

        replica = self._table.replica_of(log)
        if replica is None:
            pending.promise_broken(log)
        else:
            replica.await_committed(end, led_in, done)

    def _check_timeouts(self) -> None:
        now_s = self._loop.now_s()
        for pending in self._waiting:
            if pending.logs_left and pending.deadline_s <= now_s:
                pending.time_out()
        self._waiting = [pending for pending in self._waiting if pending.logs_left]
        self._is_checking = bool(self._waiting)
        if self._is_checking:
            self._loop.call_later(_TIMEOUT_CHECK_S, self._check_timeouts)
