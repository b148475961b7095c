"""The short way of a fetch: a consumer of one partition that waits at the end of its log.

That is how most fetches begin, with a consumer that keeps up. Such a request is read in one
compiled pass. When records are appended while it waits, they are sent from the memory they were
written from, as soon as readers may see them: nothing is planned, and no file is read.

Everything else goes the long way (`fetch_handler`), also in the middle of the wait: the request
is kept, and is handled as if it had just come, with the time that it has left.
"""

import logging
import math
from collections.abc import Sequence
from typing import Final, Protocol
from uuid import UUID

from cordwood.broker.net.loop.event_loop import EventLoop, Timer
from cordwood.broker.net.requests.answer import Answer, Connection
from cordwood.broker.records.known_logs import KnownLogs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.client_quotas import ClientQuotas
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.fetch_request import FIRST_WITH_TOPIC_ID
from cordwood.protocol.fetch_response import SoleFetchResponse
from cordwood.protocol.request_header import RequestHeader
from cordwood.protocol.sole_fetch import find_sole_fetch
from cordwood.quantities import Offset

logger = logging.getLogger(__name__)

_FETCH: Final = int(ApiKey.FETCH)
_READ, _TOPIC = needs.FETCH_TOPIC.operation, needs.FETCH_TOPIC.resource
_READ_COMMITTED: Final = 1
_FIRST_WITH_ZSTD: Final = 10
COPIED_BYTES_MAX: Final = 16 * 1024  # what is larger is sent from its file


class LongWay(Protocol):
    """Takes fetches that the short way does not answer."""

    def continue_fetch(
        self, answer: Answer, frame: bytes, *, left_ms: int, is_late: bool = False
    ) -> None:
        """Handle the request in `frame`, whose answer has its place already.

        It may wait for `left_ms` more; if it `is_late`, it waits for nothing any more.
        """
        ...


class _LogReaders:
    """The fetches that wait at the end of one log, and the forms of their answers."""

    __slots__ = ("_topic_id", "log", "responses", "waiting")

    def __init__(self, log: PartitionLog, topic_id: UUID) -> None:
        self.log = log
        self._topic_id = topic_id
        self.waiting: dict[_WaitingFetch, None] = {}
        self.responses: dict[tuple[int, bool], SoleFetchResponse] = {}

    @property
    def is_idle(self) -> bool:
        return not self.waiting

    def response(self, version: int, is_committed: bool) -> SoleFetchResponse:
        found = self.responses.get((version, is_committed))
        if found is None:
            topic = self._topic_id if version >= FIRST_WITH_TOPIC_ID else self.log.topic
            found = SoleFetchResponse(version, topic, self.log.partition, is_committed=is_committed)
            self.responses[version, is_committed] = found
        return found


class _WaitingFetch:
    """One fetch, from its arrival to its answer or to the long way."""

    __slots__ = (
        "_fetches",
        "answer",
        "bytes_max",
        "frame",
        "is_committed",
        "leader_epoch",
        "min_bytes",
        "offset",
        "readers",
        "timer",
        "until_s",
    )

    def __init__(
        self,
        fetches: "SoleFetches",
        readers: _LogReaders,
        answer: Answer,
        frame: bytes,
        limits: tuple[int, int],
        offset: int,
        leader_epoch: int,
        is_committed: bool,
        until_s: float,
    ) -> None:
        self._fetches = fetches
        self.readers = readers
        self.answer = answer
        self.frame = frame
        self.min_bytes, self.bytes_max = limits
        self.offset = offset
        self.leader_epoch = leader_epoch
        self.is_committed = is_committed
        self.until_s = until_s
        self.timer: Timer | None = None

    def log_moved(self, log: PartitionLog) -> None:
        state = log.state
        if state.high_watermark != self.offset or state.is_closed:
            self._fetches.leave(self)

    def time_is_up(self) -> None:
        self._fetches.leave(self, has_waited=True)

    def client_left(self) -> None:
        self._fetches.leave(self, is_late=True)


class SoleFetches:
    """All fetches on the short way. Belongs to the data loop."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        watch: LogWatch,
        loop: EventLoop,
        quotas: ClientQuotas,
        bytes_max: int,
        long_way: LongWay,
    ) -> None:
        self._table = table
        self._watch = watch
        self._loop = loop
        self._quotas = quotas
        self._bytes_max = bytes_max
        self._long_way = long_way
        self._logs = KnownLogs(table, watch, _LogReaders)
        self._waiting: dict[_WaitingFetch, None] = {}

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def take(self, connection: Connection, data: memoryview, begin: int, end: int) -> bool:
        """Whether the fetch in ``data[begin:end]`` was taken, and will be answered.

        If not, nothing was done: there is something to answer now, or it is unusual, or wrong.
        """
        found = find_sole_fetch(data, begin, end)
        if found is None or self._quotas.is_set or self._table.cluster is not None:
            return False
        (
            version,
            correlation_id,
            max_wait_ms,
            min_bytes,
            bytes_max,
            isolation_level,
            name_at,
            name_end,
            partition,
            leader_epoch,
            offset,
            last_fetched_epoch,
            partition_bytes_max,
        ) = found
        if max_wait_ms <= 0 or min_bytes <= 0 or last_fetched_epoch >= 0:
            return False
        key = (bytes(data[name_at:name_end]), partition)
        is_id = version >= FIRST_WITH_TOPIC_ID
        readers = (self._logs.by_id if is_id else self._logs.by_name).get(key)
        if readers is None:
            readers = self._logs.find(key, is_id=is_id)
            if readers is None:
                return False
        log = readers.log
        state = log.state
        if (
            offset != state.high_watermark
            or state.is_closed
            or version < _FIRST_WITH_ZSTD
            or log.archive.is_attached
            or not self._may_read(connection, log, leader_epoch)
        ):
            return False
        wait_s = max_wait_ms / 1000
        answer = Answer(connection, RequestHeader(_FETCH, version, correlation_id, None))
        fetch = _WaitingFetch(
            self,
            readers,
            answer,
            bytes(data[begin:end]),
            (min_bytes, min(bytes_max, partition_bytes_max, self._bytes_max)),
            offset,
            leader_epoch,
            isolation_level == _READ_COMMITTED,
            self._loop.now_s() + wait_s,
        )
        self._waiting[fetch] = readers.waiting[fetch] = None
        answer.when_left = fetch.client_left
        fetch.timer = self._loop.call_later(wait_s, fetch.time_is_up)
        self._watch.await_progress(log, fetch)
        # The log may have moved before the fetch was entered; then no report follows.
        fetch.log_moved(log)
        return True

    def _may_read(self, connection: Connection, log: PartitionLog, leader_epoch: int) -> bool:
        if leader_epoch >= 0 and self._table.leader_refusal(log, leader_epoch) is not None:
            return False
        access = connection.session.access
        return access.is_unlimited or access.allows(_READ, _TOPIC, log.topic)

    def appended(
        self, log: PartitionLog, group: BatchGroup, bases: Sequence[object], end_before: Offset
    ) -> None:
        """Answer those who wait for `group`, which was appended, if they may see it now.

        `bases` are the answers of the log, which ended at `end_before` until then. Those who are
        not answered hear of it by the log's report.
        """
        readers = self._logs.of(log)
        if readers is None or not readers.waiting:
            return
        data, base, state = group.data, bases[0], log.state
        size = len(data)
        if size > COPIED_BYTES_MAX or not isinstance(base, int) or base < end_before:
            return
        end = base
        for batch, placed in zip(group.batches, bases, strict=True):
            if placed != end:
                return  # refused, or stored before: it is not where the others are
            end += batch.record_count
        if (
            state.high_watermark != end
            or log.last_stable_offset != end
            or state.segments.active.base_offset > base  # a file ends in between
            or state.is_closed
            or self._quotas.is_set
        ):
            return
        for fetch in list(readers.waiting):
            if (
                fetch.offset == base
                and fetch.min_bytes <= size <= fetch.bytes_max
                and self._may_read(fetch.answer.connection, log, fetch.leader_epoch)
            ):
                self._answer(fetch, data, Offset(end), state.start)

    def _answer(
        self, fetch: _WaitingFetch, data: bytearray | memoryview, end: Offset, log_start: Offset
    ) -> None:
        self._forget(fetch)
        answer = fetch.answer
        header = answer.header
        response = fetch.readers.response(header.api_version, fetch.is_committed)
        answer.give_here((response.encode(header.correlation_id, end, log_start, data),))

    def leave(
        self, fetch: _WaitingFetch, *, has_waited: bool = False, is_late: bool = False
    ) -> None:
        """Hand a fetch over to the long way. `is_late`: nobody waits for its answer any more."""
        if self._forget(fetch):
            left_s = 0.0 if has_waited else fetch.until_s - self._loop.now_s()
            try:
                self._long_way.continue_fetch(
                    fetch.answer,
                    fetch.frame,
                    left_ms=max(math.ceil(left_s * 1000), 0),
                    is_late=is_late,
                )
            except Exception:  # a bug of ours: no client is left waiting
                logger.exception("%s: a fetch failed", fetch.readers.log.name)
                fetch.answer.abandon("the broker failed")

    def finish_all(self) -> None:
        """The broker stops: answer every fetch that waits."""
        for fetch in list(self._waiting):
            self.leave(fetch, is_late=True)

    def _forget(self, fetch: _WaitingFetch) -> bool:
        """Whether the fetch was waiting until now."""
        if fetch not in self._waiting:
            return False
        del self._waiting[fetch], fetch.readers.waiting[fetch]
        if fetch.timer is not None:
            fetch.timer.cancel()
        fetch.answer.when_left = None
        self._watch.forget(fetch.readers.log, fetch)
        return True
