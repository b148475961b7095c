"""Fetch: send records from the files they are in, now or when there are enough of them.

A consumer of one partition that has read everything usually takes the short way (`sole_fetches`).

An answer is planned, not read (`fetch_plan`): for each partition a range of a segment file, which
the connection sends with `sendfile`. A fetch that finds too little waits for the logs it named. It
is planned again each time one of them moves, until it has `min_bytes` or its time is over.
"""

from collections.abc import Iterable
from time import perf_counter
from typing import Final

from cordwood.broker.cluster_view import BrokerAddress
from cordwood.broker.net.loop.event_loop import EventLoop, Timer
from cordwood.broker.net.requests.answer import Answer, Connection, begin_answer
from cordwood.broker.records.archive_reads import (
    ArchivedPlace,
    ArchivedRange,
    ArchiveReads,
    ReaderThreads,
)
from cordwood.broker.records.cluster_partitions import Fetcher
from cordwood.broker.records.fetch_plan import FetchPlan
from cordwood.broker.records.fetch_sessions import FetchSessions, SessionUse
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.lost_records import LostRecords
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.records.sole_fetches import SoleFetches
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.client_quotas import ClientQuotas, to_ms
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.protocol.fetch_request import (
    FIRST_FLEXIBLE,
    FIRST_WITH_TOPIC_ID,
    FetchRequest,
    decode_fetch_request,
)
from cordwood.protocol.fetch_response import FetchedPart, encode_fetch_response
from cordwood.protocol.request_header import decode_request_header, skip_header_tags
from cordwood.quantities import Offset

_READ_COMMITTED: Final = 1
# A fetch waits so long for archived records, and for records that were acknowledged and are being
# synced, even if it asked not to wait at all.
_RECORDS_WAIT_MS: Final = 500


class _PendingFetch:
    """One fetch, from its arrival to its answer."""

    __slots__ = (
        "_handler",
        "answer",
        "busy_s",
        "fetcher",
        "found",
        "has_waited",
        "is_late",
        "is_over",
        "logs",
        "marks",
        "reading",
        "request",
        "timer",
        "use",
        "wait_ms",
        "was_planned",
    )

    def __init__(
        self, handler: "FetchHandler", answer: Answer, request: FetchRequest, use: SessionUse
    ) -> None:
        self._handler = handler
        self.answer = answer
        self.request = request
        self.use = use
        self.fetcher: Fetcher | None = None  # the follower that sent it; None: a consumer did
        self.logs: list[PartitionLog] = []
        self.marks: list[Offset] = []  # each log's high watermark when it was looked at
        self.timer: Timer | None = None
        self.reading: set[ArchivedPlace] = set()  # places that are being read from archives
        self.found: dict[ArchivedPlace, ArchivedRange] = {}  # and what was read
        self.busy_s = 0.0  # the time that was spent on it
        self.wait_ms = max(request.max_wait_ms, 0)  # as long as the client wants to wait
        self.has_waited = not self.wait_ms
        self.was_planned = False  # and waits: it says nothing new about who sent it
        self.is_late = False  # it waits for nothing any more
        self.is_over = False

    def log_moved(self, log: PartitionLog) -> None:
        self._handler.look_again(self)

    def archive_read(self, place: ArchivedPlace, found: ArchivedRange) -> None:
        self.reading.discard(place)
        self.found[place] = found
        self._handler.look_again(self)


class FetchHandler:
    """Runs in the data loop."""

    def __init__(
        self,
        *,
        table: PartitionTable,
        watch: LogWatch,
        loop: EventLoop,
        readers: ReaderThreads,
        sessions: FetchSessions,
        bytes_max: int,
        quotas: ClientQuotas | None = None,
    ) -> None:
        self._quotas = ClientQuotas() if quotas is None else quotas
        self._sessions = sessions
        self._table = table
        self._watch = watch
        self._loop = loop
        self._archive = ArchiveReads(loop, readers)
        self._bytes_max = bytes_max
        self._waiting: dict[_PendingFetch, None] = {}
        self.lost_records = LostRecords()
        self.soles = SoleFetches(
            table=table,
            watch=watch,
            loop=loop,
            quotas=self._quotas,
            bytes_max=bytes_max,
            long_way=self,
        )

    @property
    def waiting_count(self) -> int:
        return len(self._waiting) + self.soles.waiting_count

    def start(self, connection: Connection, data: memoryview, begin: int, end: int) -> None:
        """Handle the request in ``data[begin:end]``, the short way if that is possible."""
        if not self.soles.take(connection, data, begin, end):
            answer, body = begin_answer(connection, data, begin, end)
            self.handle(answer, body)

    def handle(self, answer: Answer, body: memoryview) -> None:
        """The long way: answer now or later."""
        self._begin(self._pending(answer, body))

    def _pending(self, answer: Answer, body: memoryview) -> _PendingFetch:
        version = answer.header.api_version
        request = decode_fetch_request(version, body)
        use = self._sessions.use(request, by_topic_id=version >= FIRST_WITH_TOPIC_ID)
        return _PendingFetch(self, answer, request, use)

    def _begin(self, pending: _PendingFetch) -> None:
        answer, request, use = pending.answer, pending.request, pending.use
        if request.replica_id >= 0 and self._table.cluster is not None:
            pending.fetcher = Fetcher(request.replica_id, request.replica_epoch)
            if not answer.connection.session.may(needs.REPLICA_FETCH):
                self._refuse_follower(pending)
                return
        if use.error_code:
            self._respond(pending, [])
        elif not self._try(pending):
            self._wait(pending)

    def continue_fetch(
        self, answer: Answer, frame: bytes, *, left_ms: int, is_late: bool = False
    ) -> None:
        """Handle a request that began the short way. It may wait for `left_ms` more.

        `is_late`: it waits for nothing any more.
        """
        view = memoryview(frame)
        answer.header, at = decode_request_header(view)
        if answer.header.api_version >= FIRST_FLEXIBLE:
            at = skip_header_tags(view, at)
        pending = self._pending(answer, view[at:])
        pending.wait_ms = left_ms
        pending.has_waited = left_ms <= 0
        pending.is_late = is_late
        self._begin(pending)

    def _refuse_follower(self, pending: _PendingFetch) -> None:
        code = needs.REPLICA_FETCH.code
        parts = [FetchedPart(part.topic, part.partition, code) for part in pending.use.parts]
        self._respond(pending, parts)

    def look_again(self, pending: _PendingFetch) -> None:
        """A log has moved, or an archive was read."""
        if pending.is_over:
            return
        logs = pending.logs
        if self._try(pending):
            self._stop_waiting(pending)
        elif pending.logs != logs:
            # A topic was deleted and created again: its name means another log now.
            for log in logs:
                self._watch.forget(log, pending)
            self._await_logs(pending)

    def finish_all(self) -> None:
        """The broker stops: answer every fetch that waits."""
        self.soles.finish_all()
        for pending in list(self._waiting):
            self._time_over(pending)

    # --- waiting -----------------------------------------------------------------------------

    def _wait(self, pending: _PendingFetch) -> None:
        self._waiting[pending] = None
        pending.answer.when_left = lambda: self._time_over(pending)
        self._set_timer(pending)
        self._await_logs(pending)

    def _set_timer(self, pending: _PendingFetch) -> None:
        """For as long as the client wants to wait; then for what must be waited for."""
        wait_ms = pending.wait_ms
        if pending.has_waited:
            wait_ms = max(_RECORDS_WAIT_MS - max(pending.request.max_wait_ms, 0), 0)
        pending.timer = self._loop.call_later(wait_ms / 1000, lambda: self._waited(pending))

    def _waited(self, pending: _PendingFetch) -> None:
        if pending.has_waited:
            self._time_over(pending)
            return
        pending.has_waited = True
        self.look_again(pending)
        if not pending.is_over:
            self._set_timer(pending)

    def _await_logs(self, pending: _PendingFetch) -> None:
        for log in pending.logs:
            self._watch.await_progress(log, pending)
        # A log may have moved before the fetch was entered; then no report follows.
        for log, mark in zip(pending.logs, pending.marks, strict=True):
            at = log.high_watermark if pending.fetcher is None else log.end_offset
            if at != mark or log.is_closed:
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

    # --- answering ---------------------------------------------------------------------------

    def _try(self, pending: _PendingFetch) -> bool:
        """Answer, if there is enough to answer with or this is the last look."""
        request, parts = pending.request, pending.use.parts
        started_s = perf_counter()
        plan = FetchPlan(
            self._table,
            version=pending.answer.header.api_version,
            is_committed=request.isolation_level == _READ_COMMITTED,
            bytes_max=self._bytes_max_of(pending),
            found=pending.found,
            session=pending.answer.connection.session,
            fetcher=pending.fetcher,
            client_id=pending.answer.header.client_id,
            is_again=pending.was_planned,
            rack=request.rack_id,
        )
        pending.was_planned = True
        for part in parts:
            plan.add(part)
        pending.busy_s += perf_counter() - started_s
        pending.logs, pending.marks = plan.logs, plan.marks
        if not pending.is_late:
            for place in plan.archived:
                if place not in pending.reading:
                    pending.reading.add(place)
                    self._archive.read(place, pending.archive_read)
            if pending.reading and not plan.is_urgent:
                return False  # else partitions that always have records would be all it ever gets
        is_last = pending.is_late or pending.has_waited or not parts
        is_empty = not (plan.size or plan.is_urgent)
        if is_last and is_empty and not pending.is_late and _are_awaited(plan.logs):
            return False  # there are records that the client may know of
        if not (is_last or plan.is_urgent or plan.size >= request.min_bytes):
            return False
        for log, hole in plan.lost:
            self.lost_records.note(log, hole, now_s=self._loop.now_s())
        self._respond(pending, plan.parts)
        return True

    def _respond(self, pending: _PendingFetch, parts: list[FetchedPart]) -> None:
        pending.is_over = True
        header, use = pending.answer.header, pending.use
        if self._quotas.is_set and not use.error_code and pending.fetcher is None:
            pause_s = self._count(pending, parts)
            if pause_s:
                self._respond_throttled(pending, pause_s)
                return
        news = use.answer_with(parts)
        nodes: list[BrokerAddress] = []
        if self._table.cluster is not None and pending.fetcher is None:
            here = pending.answer.connection.session.listener
            nodes = self._table.addresses((part.leader for part in news), here)
        pieces = encode_fetch_response(
            header.api_version,
            header.correlation_id,
            news,
            error_code=use.error_code,
            session_id=use.session_id,
            nodes=nodes,
        )
        pending.answer.give(pieces)

    # --- quotas ------------------------------------------------------------------------------

    def _bytes_max_of(self, pending: _PendingFetch) -> int:
        bytes_max = min(pending.request.max_bytes, self._bytes_max)
        if self._quotas.is_set and pending.fetcher is None:
            allowed = self._quotas.fetch_bytes_max(*_client(pending.answer))
            if allowed is not None:  # or a client with a small quota would never get an answer
                return min(bytes_max, allowed)
        return bytes_max

    def _count(self, pending: _PendingFetch, parts: list[FetchedPart]) -> float:
        """How long the client has to wait before it may have `parts`. If so, none is counted."""
        quotas, client = self._quotas, _client(pending.answer)
        size = sum(part.size for part in parts)
        pause_s = quotas.fetched(*client, size)
        if quotas.times_requests:
            time_s = quotas.took(*client, pending.busy_s)
            if time_s and not pause_s:
                quotas.take_back_fetched(*client, size)
            pause_s = max(pause_s, time_s)
        return pause_s

    def _respond_throttled(self, pending: _PendingFetch, pause_s: float) -> None:
        """An answer without partitions. The client asks again, and is read when it may."""
        header, use = pending.answer.header, pending.use
        session_id = use.session_id
        if not use.is_incremental:  # a client that gets nothing begins its session again
            self._sessions.end(use)
            session_id = 0
        pending.answer.pause_s = pause_s
        pending.answer.give(
            encode_fetch_response(
                header.api_version,
                header.correlation_id,
                (),
                session_id=session_id,
                throttle_ms=to_ms(pause_s),
            )
        )


def _client(answer: Answer) -> tuple[str, str]:
    return answer.connection.session.principal.name, answer.header.client_id or ""


def _are_awaited(logs: Iterable[PartitionLog]) -> bool:
    """Whether a log has records that were acknowledged and become visible with its next sync."""
    return any(log.promises.are_ahead_of_readers for log in logs)
