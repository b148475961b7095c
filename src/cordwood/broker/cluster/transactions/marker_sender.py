"""Sends the markers of prepared transactions to the brokers that lead their partitions.

    a marker    waits for its leader, which the newest image names
    a broker    gets one request at a time; what waits for it meanwhile is sent with the next one
    an error    the leader is looked up again, after a pause that grows with each try
    an answer   a partition that has its marker is told to the table; after the last one the
                transaction is complete

A marker that a broker did not answer may be there. It is sent again, and does no harm twice. If the
leadership moves while a request is under way, its markers are sent to the new leader at once.

INVALID_PRODUCER_EPOCH says that the log has a newer epoch of the producer: the marker was there
before. TRANSACTION_COORDINATOR_FENCED says that another coordinator has taken over: this one will
be told, and tries on slowly until then.
"""

import heapq
import itertools
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from cordwood.broker.cluster.transactions.coordinator_lookup import CoordinatorLookup
from cordwood.broker.cluster.transactions.partition_codes import (
    PartitionCodes,
    by_topic,
    code_of,
    read_codes,
)
from cordwood.broker.net.loop.scheduler import Scheduler, Timer
from cordwood.broker.net.outbound.outbound_call import OutboundCall, OutboundResult
from cordwood.errors import CordwoodError
from cordwood.format.transaction_records import TopicPartition
from cordwood.log.transactions.marker_writer import MarkerRound, WantedMarker
from cordwood.log.transactions.transaction_entry import TransactionEntry
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import encode_request

if TYPE_CHECKING:
    from cordwood.protocol.schemas import transaction_messages as messages

logger = logging.getLogger(__name__)

_VERSION_MIN: Final = 1
_VERSION_MAX: Final = 2
_ANSWER_S: Final = 30.0  # a leader waits for its replicas for 20 s
_REQUEST_MARKERS_MAX: Final = 1000
_PAUSE_MIN_S: Final = 0.05
_PAUSE_MAX_S: Final = 1.0
_FENCED_PAUSE_S: Final = 10.0
# A partition that the image lacks was deleted, or this broker has not heard of it yet.
_UNKNOWN_S: Final = 5.0
_DONE: Final = frozenset({ErrorCode.none, ErrorCode.invalid_producer_epoch})


class MarkedTable(Protocol):
    """The table of transactions that markers are sent for. Any thread."""

    @property
    def is_closed(self) -> bool: ...

    def unmarked(self, entries: Iterable[TransactionEntry]) -> list[MarkerRound]: ...

    def marked(self, each: MarkerRound, places: frozenset[TopicPartition]) -> None: ...


class SendsRequests(Protocol):
    """Connections to other brokers. Belongs to the loop."""

    def send(self, node_id: int, call: OutboundCall) -> None: ...


# Writes markers to partitions that are led here, and calls back in any thread.
WritesHere = Callable[[Sequence[WantedMarker], Callable[[Sequence[ErrorCode]], None]], None]


class _Task:
    """One marker on its way. Belongs to the sender. `node` is the broker that was asked last."""

    __slots__ = ("is_done", "marker", "node", "round", "since_s", "table", "tries")

    def __init__(
        self, table: MarkedTable, each: MarkerRound, marker: WantedMarker, since_s: float
    ) -> None:
        self.table = table
        self.round = each
        self.marker = marker
        self.since_s = since_s
        self.tries = 0
        self.node: int | None = None
        self.is_done = False


class MarkerSender:
    """Belongs to the thread of `loop`.

    unwritten_count  partitions whose markers were tried and are not written yet
    failure_count    tries that failed, since the start
    """

    def __init__(
        self,
        loop: Scheduler,
        lookup: CoordinatorLookup,
        peers: SendsRequests,
        *,
        node_id: int,
        write_here: WritesHere,
    ) -> None:
        self._loop = loop
        self._lookup = lookup
        self._peers = peers
        self._node_id = node_id
        self._write_here = write_here
        self._waiting: dict[int, list[_Task]] = {}
        self._under_way: dict[int, list[_Task]] = {}
        self._paused: list[tuple[float, int, _Task]] = []
        self._order = itertools.count()
        self._timer: Timer | None = None
        self._unreached: set[int] = set()
        self.failure_count = 0

    @property
    def unwritten_count(self) -> int:
        return len(self._paused)

    def send(self, table: MarkedTable, entry: TransactionEntry) -> None:
        """Have all partitions of a prepared transaction get their markers."""
        now_s = self._loop.now_s()
        for each in table.unmarked([entry]):
            if not each.wanted:
                table.marked(each, frozenset())
            self._route([_Task(table, each, marker, now_s) for marker in each.wanted])

    def look_again(self) -> None:
        """Send what waits for a broker that does not lead any more to the one that does.

        To be called now and then: the broker may be silent for as long as a request may take.
        """
        moved: list[_Task] = []
        for node_id in list(self._under_way):
            waiting = self._waiting.pop(node_id, [])
            stays: list[_Task] = []
            for task in waiting:
                (moved if self._has_moved(task, node_id) else stays).append(task)
            if stays:
                self._waiting[node_id] = stays
            moved += (t for t in self._under_way[node_id] if self._has_moved(t, node_id))
        self._route(moved)

    def _has_moved(self, task: _Task, node_id: int) -> bool:
        return (
            not task.is_done
            and task.node == node_id
            and self._lookup.leader_of(task.marker.place) not in (node_id, None)
        )

    # --- routes ------------------------------------------------------------------------------

    def _route(self, tasks: Iterable[_Task]) -> None:
        """Give each marker to the leader of its partition, or let it wait for one."""
        touched: set[int] = set()
        for task in tasks:
            if task.is_done or task.table.is_closed:
                continue
            leader = self._lookup.leader_of(task.marker.place)
            task.node = leader
            if leader is not None:
                self._waiting.setdefault(leader, []).append(task)
                touched.add(leader)
            elif self._is_deleted(task):
                self._settle([task])
            else:
                self._pause(task)
        for node_id in touched:
            self._flush(node_id)

    def _is_deleted(self, task: _Task) -> bool:
        return (
            not self._lookup.is_known(task.marker.place)
            and self._loop.now_s() - task.since_s >= _UNKNOWN_S
        )

    def _flush(self, node_id: int) -> None:
        if node_id in self._under_way:
            return
        waiting = self._waiting.pop(node_id, [])
        tasks, rest = waiting[:_REQUEST_MARKERS_MAX], waiting[_REQUEST_MARKERS_MAX:]
        if rest:
            self._waiting[node_id] = rest
        if not tasks:
            return
        self._under_way[node_id] = tasks
        if node_id == self._node_id:
            markers = [task.marker for task in tasks]
            self._write_here(
                markers,
                lambda codes: self._loop.call_soon(
                    partial(self._answered, node_id, tasks, list(codes))
                ),
            )
            return
        self._peers.send(
            node_id,
            OutboundCall(
                api=ApiKey.WRITE_TXN_MARKERS,
                version_min=_VERSION_MIN,
                version_max=_VERSION_MAX,
                encode=lambda version: _encode([task.marker for task in tasks], version),
                when_done=lambda result: self._received(node_id, tasks, result),
                timeout_s=_ANSWER_S,
            ),
        )

    # --- answers -----------------------------------------------------------------------------

    def _received(self, node_id: int, tasks: Sequence[_Task], result: OutboundResult) -> None:
        """A broker has answered, or was not reached. That is logged once until it is."""
        if not isinstance(result, CordwoodError):
            self._unreached.discard(node_id)
        elif node_id not in self._unreached:
            self._unreached.add(node_id)
            logger.info("broker %d was not reached with transaction markers: %s", node_id, result)
        codes = read_codes(
            result, node_id=node_id, api=ApiKey.WRITE_TXN_MARKERS, codes_of=_codes_of
        )
        found = [code_of(codes, task.marker.producer_id, task.marker.place) for task in tasks]
        self._answered(node_id, tasks, found)

    def _answered(self, node_id: int, tasks: Sequence[_Task], codes: Sequence[ErrorCode]) -> None:
        self._under_way.pop(node_id, None)
        self._settle([task for task, code in zip(tasks, codes, strict=True) if code in _DONE])
        for task, code in zip(tasks, codes, strict=True):
            if task.is_done or task.node != node_id:  # it was sent to another broker meanwhile
                continue
            self.failure_count += 1
            if not task.tries or code is ErrorCode.transaction_coordinator_fenced:
                logger.info(
                    "%s-%d: broker %d did not write the marker of producer %d: %s",
                    *task.marker.place,
                    node_id,
                    task.marker.producer_id,
                    code.name,
                )
            self._pause(task, is_fenced=code is ErrorCode.transaction_coordinator_fenced)
        self._flush(node_id)

    def _settle(self, tasks: Iterable[_Task]) -> None:
        """These partitions have their markers, or need none."""
        by_round: dict[int, tuple[MarkedTable, MarkerRound, set[TopicPartition]]] = {}
        for task in tasks:
            task.is_done = True
            found = by_round.setdefault(id(task.round), (task.table, task.round, set()))
            found[2].add(task.marker.place)
        for table, each, places in by_round.values():
            table.marked(each, frozenset(places))

    def _pause(self, task: _Task, *, is_fenced: bool = False) -> None:
        pause_s = min(_PAUSE_MIN_S * 2 ** min(task.tries, 10), _PAUSE_MAX_S)
        task.tries += 1
        task.node = None
        due_s = self._loop.now_s() + (_FENCED_PAUSE_S if is_fenced else pause_s)
        heapq.heappush(self._paused, (due_s, next(self._order), task))
        if self._timer is None or due_s == self._paused[0][0]:
            self._plan()

    def _plan(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._paused:
            delay_s = max(self._paused[0][0] - self._loop.now_s(), 0.0)
            self._timer = self._loop.call_later(delay_s, self._resume)

    def _resume(self) -> None:
        self._timer = None
        due: list[_Task] = []
        now_s = self._loop.now_s()
        while self._paused and self._paused[0][0] <= now_s:
            due.append(heapq.heappop(self._paused)[2])
        self._route(due)
        self._plan()


def _encode(markers: Sequence[WantedMarker], version: int) -> bytes:
    """One entry for each transaction, with all its partitions on that broker."""
    together: dict[tuple[int, int], list[WantedMarker]] = {}
    for marker in markers:
        together.setdefault((marker.producer_id, marker.epoch), []).append(marker)
    entries = [
        {
            "producer_id": first.producer_id,
            "producer_epoch": first.epoch,
            "transaction_result": first.is_commit,
            "topics": [
                {"name": name, "partition_indexes": numbers}
                for name, numbers in by_topic(marker.place for marker in those).items()
            ],
            "coordinator_epoch": first.coordinator_epoch,
            "transaction_version": first.version,
        }
        for those in together.values()
        for first in those[:1]
    ]
    return encode_request(ApiKey.WRITE_TXN_MARKERS, version, {"markers": entries})


def _codes_of(answer: "messages.WriteTxnMarkersResponse") -> PartitionCodes:
    return {
        (marker.producer_id, topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for marker in answer.markers
        for topic in marker.topics
        for partition in topic.partitions
    }
