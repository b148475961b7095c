"""Fetch: hand out records from where they lie, now or when there are enough of them.

An answer is planned, not read: for each partition a range of a segment file, which the
connection sends with `sendfile`. A fetch that finds too little waits for the logs it named; each
time one moves it is planned anew, until it has `min_bytes` or its time is over.

Limits, as Kafka has them: partitions are served in the order of the request; the answer holds
about `max_bytes`, a partition `partition_max_bytes`; the first batch of the answer is whole,
however large it is, so that nobody is stuck.
"""

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from cordwood.broker.error_codes import error_code
from cordwood.broker.net.answer import Answer
from cordwood.broker.net.event_loop import EventLoop, Timer
from cordwood.broker.records.fetch_sessions import FetchSessions, SessionUse
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.errors import CordwoodError, OffsetOutOfRangeError, StorageError
from cordwood.format.compression import Codec
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import FileRange, read_range
from cordwood.log.reading.log_source import LogView
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.fetch_request import (
    FIRST_WITH_TOPIC_ID,
    FetchPartition,
    FetchRequest,
    decode_fetch_request,
)
from cordwood.protocol.fetch_response import FetchedPart, encode_fetch_response
from cordwood.quantities import LeaderEpoch, Offset

logger = logging.getLogger(__name__)

_READ_COMMITTED: Final = 1
_FIRST_WITH_ZSTD: Final = 10
# Who asks for archived records waits this long for them, also when it wants no waiting at all.
_ARCHIVE_WAIT_MS: Final = 500

# What is read from an archive: which log, from which offset, how many bytes.
ArchivedPlace = tuple[PartitionLog, int, int]
ArchivedRange = FileRange | Exception | None


class _PendingFetch:
    """One fetch, from its arrival to its answer."""

    __slots__ = (
        "answer",
        "handler",
        "is_late",
        "is_over",
        "logs",
        "marks",
        "ranges",
        "reading",
        "request",
        "timer",
        "use",
    )

    def __init__(
        self, handler: "FetchHandler", answer: Answer, request: FetchRequest, use: SessionUse
    ) -> None:
        self.handler = handler
        self.answer = answer
        self.request = request
        self.use = use
        self.logs: list[PartitionLog] = []
        self.marks: list[Offset] = []  # where each log's high watermark was when it was looked at
        self.timer: Timer | None = None
        self.reading: set[ArchivedPlace] = set()  # what an archive has been asked for
        self.ranges: dict[ArchivedPlace, ArchivedRange] = {}  # and what it answered
        self.is_late = False
        self.is_over = False

    def log_moved(self, log: PartitionLog) -> None:
        self.handler.look_again(self)


class FetchHandler:
    """Runs in the data loop."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        watch: LogWatch,
        loop: EventLoop,
        workers: Executor,
        sessions: FetchSessions,
        bytes_max: int,
    ) -> None:
        self.sessions = sessions
        self._table = table
        self._watch = watch
        self._loop = loop
        self._workers = workers
        self._bytes_max = bytes_max
        self._waiting: dict[_PendingFetch, None] = {}
        self._reads: dict[ArchivedPlace, list[_PendingFetch]] = {}  # who waits for each

    @property
    def waiting_count(self) -> int:
        return len(self._waiting)

    def handle(self, answer: Answer, body: memoryview) -> None:
        version = answer.header.api_version
        request = decode_fetch_request(version, body)
        use = self.sessions.use(request, by_topic_id=version >= FIRST_WITH_TOPIC_ID)
        pending = _PendingFetch(self, answer, request, use)
        if use.error_code:
            self._respond(pending, [])
        elif not self._try(pending):
            self._wait(pending)

    def look_again(self, pending: _PendingFetch) -> None:
        """A log has moved, or the archive has answered."""
        if not pending.is_over and self._try(pending):
            self._stop_waiting(pending)

    def finish_all(self) -> None:
        """The broker stops: nobody waits any longer."""
        for pending in list(self._waiting):
            self._time_over(pending)

    def disconnected(self, answer: Answer) -> None:
        for pending in [p for p in self._waiting if p.answer is answer]:
            pending.is_over = True
            self._stop_waiting(pending)

    # --- waiting -----------------------------------------------------------------------------

    def _wait(self, pending: _PendingFetch) -> None:
        self._waiting[pending] = None
        wait_ms = pending.request.max_wait_ms
        if pending.reading:
            wait_ms = max(wait_ms, _ARCHIVE_WAIT_MS)
        pending.timer = self._loop.call_later(wait_ms / 1000, lambda: self._time_over(pending))
        for log in pending.logs:
            self._watch.await_progress(log, pending)
        # A log may have moved between the look and the entry; then nobody would tell us.
        for log, mark in zip(pending.logs, pending.marks, strict=True):
            if log.high_watermark != mark or log.is_closed:
                self.look_again(pending)
                return

    def _time_over(self, pending: _PendingFetch) -> None:
        if not pending.is_over:
            pending.is_late = True
            self._try(pending)
            self._stop_waiting(pending)

    def _stop_waiting(self, pending: _PendingFetch) -> None:
        self._waiting.pop(pending, None)
        if pending.timer is not None:
            pending.timer.cancel()
        for log in pending.logs:
            self._watch.forget(log, pending)

    # --- planning an answer ------------------------------------------------------------------

    def _try(self, pending: _PendingFetch) -> bool:
        """Answer, if there is enough to answer with or this is the last look."""
        request = pending.request
        is_last = pending.is_late or request.max_wait_ms <= 0 or not pending.use.parts
        plan = _FetchPlan(self, pending, min(request.max_bytes, self._bytes_max))
        for part in pending.use.parts:
            plan.add(part)
        pending.logs, pending.marks = plan.logs, plan.marks
        if not pending.is_late:
            for place in plan.archived:
                self._read_archive(pending, place)
            if pending.reading and not plan.is_urgent:
                return False  # or partitions that always have something would be all it ever gets
        if not (is_last or plan.is_urgent or plan.size >= request.min_bytes):
            return False
        self._respond(pending, plan.parts)
        return True

    def _respond(self, pending: _PendingFetch, parts: list[FetchedPart]) -> None:
        pending.is_over = True
        header, use = pending.answer.header, pending.use
        pieces = encode_fetch_response(
            header.api_version,
            header.correlation_id,
            use.answer_with(parts),
            error_code=use.error_code,
            session_id=use.session_id,
        )
        pending.answer.give(pieces)

    def find_log(self, part: FetchPartition) -> PartitionLog | ErrorCode:
        try:
            log = self._table.log(part.topic, part.partition)
        except CordwoodError as error:
            return error_code(error)
        if log is not None:
            return log
        if isinstance(part.topic, str):
            return ErrorCode.unknown_topic_or_partition
        if self._table.topic(part.topic) is None:
            return ErrorCode.unknown_topic_id
        return ErrorCode.unknown_topic_or_partition

    # --- the archive -------------------------------------------------------------------------

    def _read_archive(self, pending: _PendingFetch, place: ArchivedPlace) -> None:
        """Archived segments are fetched by a worker, and the fetch goes on when they are here.

        Who asks for the same while that takes long waits for the same worker.
        """
        pending.reading.add(place)
        waiting = self._reads.get(place)
        if waiting is not None:
            waiting.append(pending)
            return
        self._reads[place] = [pending]
        log, offset, bytes_max = place

        def read() -> None:
            found: ArchivedRange
            try:
                found = read_range(log.source, offset, max_bytes=bytes_max)
            except (CordwoodError, OSError) as error:
                found = error
            except Exception:
                logger.exception("%s: reading the archive at %d failed", log.name, offset)
                found = StorageError(f"{log.name}: reading the archive failed")
            self._loop.call_soon(lambda: arrived(found))

        def arrived(found: ArchivedRange) -> None:
            for waiting in self._reads.pop(place):
                waiting.reading.discard(place)
                waiting.ranges[place] = found
                self.look_again(waiting)

        self._workers.submit(read)


class _FetchPlan:
    """What an answer would hold now: the parts in order, within the limits."""

    def __init__(self, handler: FetchHandler, pending: _PendingFetch, bytes_left: int) -> None:
        self.parts: list[FetchedPart] = []
        self.logs: list[PartitionLog] = []
        self.marks: list[Offset] = []
        self.archived: list[ArchivedPlace] = []
        self.size = 0
        self.is_urgent = False  # an error, or news that must not wait
        self._find_log: Callable[[FetchPartition], PartitionLog | ErrorCode] = handler.find_log
        self._version = pending.answer.header.api_version
        self._is_committed = pending.request.isolation_level == _READ_COMMITTED
        self._pending = pending
        self._bytes_max = self._bytes_left = bytes_left

    def add(self, part: FetchPartition) -> None:
        log = self._find_log(part)
        if isinstance(log, ErrorCode):
            self._add_error(part, log)
            return
        self.logs.append(log)
        try:
            view = log.view()  # an archive is part of it, and may fail
            self.marks.append(view.high_watermark)
            self.parts.append(self._look_at(log, view, part))
        except OffsetOutOfRangeError as error:
            self._add_error(part, error_code(error))
        except (CordwoodError, OSError) as error:
            logger.error("%s: a fetch at %d failed: %s", log.name, part.offset, error)
            self._add_error(part, error_code(error))

    def _look_at(self, log: PartitionLog, view: LogView, part: FetchPartition) -> FetchedPart:
        refused = self._refusal(log, part)
        if refused is not None:
            return self._error(part, refused)
        stable = log.last_stable_offset if self._is_committed else None
        diverging = _diverging(log, part)
        if diverging is not None:
            self.is_urgent = True
            return self._part(log, part, None, stable, diverging)
        return self._part(log, part, self._range(log, view, part, stable), stable)

    def _add_error(self, part: FetchPartition, code: ErrorCode) -> None:
        self.parts.append(self._error(part, code))

    def _error(self, part: FetchPartition, code: ErrorCode) -> FetchedPart:
        self.is_urgent = True
        return FetchedPart(part.topic, part.partition, code)

    def _refusal(self, log: PartitionLog, part: FetchPartition) -> ErrorCode | None:
        if part.leader_epoch >= 0:
            latest = log.epochs.known.latest
            current = 0 if latest is None else latest.epoch
            if part.leader_epoch < current:
                return ErrorCode.fenced_leader_epoch
            if part.leader_epoch > current:
                return ErrorCode.unknown_leader_epoch
        if self._version < _FIRST_WITH_ZSTD and log.config.codec is Codec.ZSTD:
            return ErrorCode.unsupported_compression_type
        return None

    def _range(
        self, log: PartitionLog, view: LogView, part: FetchPartition, stable: Offset | None
    ) -> FileRange | None:
        """The records to hand out, none behind `stable`. Raises `OffsetOutOfRangeError`."""
        offset = part.offset
        if not view.start <= offset <= max(view.high_watermark, log.end_offset):
            raise OffsetOutOfRangeError(Offset(offset), start=view.start, end=view.high_watermark)
        if offset >= view.high_watermark:
            return None
        limit = min(part.max_bytes, self._bytes_left)
        if limit <= 0 and self.size:
            return None
        segment = view.segments[max(view.segments.floor(Offset(offset)), 0)]
        if segment.is_archived:
            return self._archived_range(log, part)
        found = read_range(
            log.source,
            offset,
            max_bytes=max(limit, 0),
            min_one_batch=not self.size,
            stop=stable,
        )
        if found is not None:
            self.size += found.length
            self._bytes_left -= found.length
        return found

    def _archived_range(self, log: PartitionLog, part: FetchPartition) -> FileRange | None:
        place = (log, part.offset, min(part.max_bytes, self._bytes_max))
        if place not in self._pending.ranges:
            if place not in self._pending.reading:
                self.archived.append(place)
            return None
        found = self._pending.ranges[place]
        if isinstance(found, Exception):
            raise found
        if found is not None:
            self.size += found.length
            self._bytes_left -= found.length
        return found

    def _part(
        self,
        log: PartitionLog,
        part: FetchPartition,
        records: FileRange | None,
        stable: Offset | None,
        diverging: tuple[int, int] | None = None,
    ) -> FetchedPart:
        view = log.view()
        aborted = None
        if stable is not None:
            aborted = _aborted(log, part.offset, stable) if records else ()
        return FetchedPart(
            part.topic,
            part.partition,
            0,
            view.high_watermark,
            view.high_watermark if stable is None else stable,
            view.start,
            aborted,
            diverging,
            0 if records is None else records.length,
            records,
        )


def _aborted(log: PartitionLog, start: int, stop: Offset) -> list[tuple[int, Offset]]:
    """Producer id and first offset of each aborted transaction with records in the range."""
    found = log.source.aborted_transactions(Offset(start), stop)
    return [(transaction.producer_id, transaction.first_offset) for transaction in found]


def _diverging(log: PartitionLog, part: FetchPartition) -> tuple[int, int] | None:
    """Where the client's history and ours part, if its last epoch does not fit ours."""
    if part.last_fetched_epoch < 0:
        return None
    end = log.epochs.known.end_offset_for(LeaderEpoch(part.last_fetched_epoch), log.end_offset)
    if end.epoch < part.last_fetched_epoch or end.end_offset < part.offset:
        return end.epoch, end.end_offset
    return None
