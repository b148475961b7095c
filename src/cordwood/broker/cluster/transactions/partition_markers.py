"""Writes transaction markers to partitions that this broker leads, for a coordinator anywhere.

A marker counts when the replicas in sync have it, in the leadership in which it was written: then
the coordinator may forget the partition. In a partition of ``__consumer_offsets`` it then also
decides about the offsets that are pending there.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple

from cordwood.broker.error_codes import error_code
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.clock import Clock
from cordwood.errors import CordwoodError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.topics.committed_offsets import CommittedOffsets
from cordwood.log.transactions.marker_writer import WantedMarker
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset

logger = logging.getLogger(__name__)

_ACKS_ALL: Final = -1
_TIMEOUT_S: Final = 20.0  # less than coordinators wait for the answer

WrittenMarkers = Callable[[Sequence[ErrorCode]], object]  # a code for each marker


class _Appended(NamedTuple):
    number: int
    marker: WantedMarker
    log: PartitionLog
    at: Offset
    led_in: LeaderEpoch

    @property
    def end(self) -> Offset:
        return Offset(self.at + 1)


class _Round:
    """The markers of one request. Belongs to the data loop."""

    __slots__ = ("codes", "done", "left")

    def __init__(self, codes: list[ErrorCode], left: int, done: WrittenMarkers) -> None:
        self.codes = codes
        self.left = left
        self.done = done

    def settle(self, index: int, code: ErrorCode) -> None:
        if not self.left:
            return  # timed out before
        self.codes[index] = code
        self.left -= 1
        if not self.left:
            self.done(self.codes)

    def time_out(self) -> None:
        """Those that are not committed yet keep the code that they have."""
        if self.left:
            self.left = 0
            self.done(self.codes)


class PartitionMarkers:
    """`write` is for threads that may wait for the disk; the answer comes in the data loop."""

    def __init__(
        self,
        table: PartitionTable,
        offsets: CommittedOffsets,
        *,
        data: Scheduler,
        request_sync: Callable[[PartitionLog], None],
        clock: Clock,
    ) -> None:
        self._table = table
        self._offsets = offsets
        self._data = data
        self._request_sync = request_sync
        self._clock = clock

    def write(self, markers: Sequence[WantedMarker], done: WrittenMarkers) -> None:
        """Append markers, and call `done` with their codes once all are committed or refused."""
        codes = [ErrorCode.request_timed_out] * len(markers)
        appended: list[_Appended] = []
        for index, marker in enumerate(markers):
            result = self._append(index, marker)
            if isinstance(result, ErrorCode):
                codes[index] = result
            else:
                appended.append(result)
        if appended:
            self._data.call_soon(partial(self._await, appended, codes, done))
        else:
            done(codes)

    def _append(self, index: int, marker: WantedMarker) -> _Appended | ErrorCode:
        topic, number = marker.place
        try:
            log = self._table.log(topic, number)
            if log is None:
                return self._table.why_absent(topic, number)
            refusal = self._table.append_refusal(log, _ACKS_ALL)
            led_in = self._table.led_in(log)
            if refusal is not None or led_in is None:
                return refusal or ErrorCode.not_leader_or_follower
            facts = MarkerFacts(
                producer_id=marker.producer_id,
                producer_epoch=marker.epoch,
                coordinator_epoch=marker.coordinator_epoch,
                offset=log.end_offset,
                timestamp=self._clock.now_ms(),
                is_abort=not marker.is_commit,
            )
            at = log.batches.end_transaction(
                facts, transaction_version=marker.version, wait=False, led_in=led_in
            )
        except (CordwoodError, OSError) as error:
            logger.info("%s-%d refuses a transaction marker: %s", topic, number, error)
            return error_code(error)
        return _Appended(index, marker, log, at, led_in)

    def _await(
        self, appended: Sequence[_Appended], codes: list[ErrorCode], done: WrittenMarkers
    ) -> None:
        """In the data loop: wait for the replicas in sync."""
        waiting = _Round(codes, len(appended), done)
        for each in appended:
            replica = self._table.replica_of(each.log)
            if replica is None:
                waiting.settle(each.number, ErrorCode.not_leader_or_follower)
                continue
            if not each.log.promises.is_kept(each.end):
                self._request_sync(each.log)
            replica.await_committed(each.end, each.led_in, partial(self._committed, waiting, each))
        if waiting.left:
            self._data.call_later(_TIMEOUT_S, waiting.time_out)

    def _committed(self, waiting: _Round, each: _Appended, is_committed: bool) -> None:
        marker = each.marker
        if is_committed and marker.place[0] == CONSUMER_OFFSETS_TOPIC:
            self._offsets.note_marker(
                marker.place[1], each.at, marker.producer_id, is_commit=marker.is_commit
            )
        code = ErrorCode.none if is_committed else ErrorCode.not_leader_or_follower
        waiting.settle(each.number, code)
