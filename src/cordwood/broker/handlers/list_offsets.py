"""ListOffsets and OffsetForLeaderEpoch: the offset of a time or an epoch in a log."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from cordwood.broker.error_codes import ErrorCode, RefusedError, refusal
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    split_repeated,
)
from cordwood.broker.records.early_answers import WhenVisible
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.security import access_table as needs
from cordwood.errors import CordwoodError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.time_lookup import EARLIEST, LATEST, MAX_TIMESTAMP, find_time
from cordwood.protocol.acl_codes import AclOperation, AclResource
from cordwood.protocol.api_catalog import ApiKey
from cordwood.quantities import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
)
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.protocol.schemas import offset_messages as messages

_EARLIEST_LOCAL: Final = -4  # the first offset that is on the local disk
_LATEST_ARCHIVED: Final = -5
_EARLIEST_TO_ARCHIVE: Final = -6

# Times that stand for a place in the log, and the first version that has them.
_SPECIAL_SINCE: Final[Mapping[int, int]] = MappingProxyType(
    {
        LATEST: 1,
        EARLIEST: 1,
        MAX_TIMESTAMP: 7,
        _EARLIEST_LOCAL: 8,
        _LATEST_ARCHIVED: 9,
        _EARLIEST_TO_ARCHIVE: 11,
    }
)
_READ_COMMITTED: Final = 1
_KNOWN_AT_ONCE: Final = frozenset({EARLIEST, _EARLIEST_LOCAL})  # by a leader that is new


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where in a log something was found."""

    offset: Offset
    epoch: LeaderEpoch
    timestamp_ms: TimestampMs = NO_TIMESTAMP


_NOWHERE: Final = _Place(offset=NO_OFFSET, epoch=NO_LEADER_EPOCH)


class ListOffsetsHandler:
    """Finds offsets. Called by workers, because looking up a time reads files."""

    def __init__(self, table: PartitionTable, when_visible: WhenVisible) -> None:
        self._table = table
        self._when_visible = when_visible

    def routes(self) -> list[Route]:
        return [
            Route(api=ApiKey.LIST_OFFSETS, handler=self.list_offsets, runs_on=RunsOn.WORKER),
            Route(
                api=ApiKey.OFFSET_FOR_LEADER_EPOCH,
                handler=self.offset_for_leader_epoch,
                runs_on=RunsOn.ANYWHERE,
            ),
        ]

    # --- ListOffsets -------------------------------------------------------------------------

    def list_offsets(
        self, context: RequestContext, request: messages.ListOffsetsRequest
    ) -> Response | Deferred:
        return self._when_visible(
            self._read_to_the_end(context, request),
            lambda unseen: self._list(context, request, unseen),
        )

    def _read_to_the_end(
        self, context: RequestContext, request: messages.ListOffsetsRequest
    ) -> Iterator[PartitionLog]:
        """The logs that are asked for something that their last records decide."""
        access = context.session.access
        for topic in request.topics:
            if not access.allows(AclOperation.DESCRIBE, AclResource.TOPIC, topic.name):
                continue  # `_list` refuses it
            for wanted in topic.partitions:
                if wanted.timestamp >= 0 or wanted.timestamp in {LATEST, MAX_TIMESTAMP}:
                    with contextlib.suppress(CordwoodError):  # `_list` says what is wrong
                        log = self._table.log(topic.name, wanted.partition_index)
                        if log is not None:
                            yield log

    def _list(
        self,
        context: RequestContext,
        request: messages.ListOffsetsRequest,
        unseen: Collection[PartitionLog],
    ) -> messages.ListOffsetsResponseDict:
        places = [(t.name, p.partition_index) for t in request.topics for p in t.partitions]
        _, repeated = split_repeated(places, lambda place: place)
        twice = set(repeated)
        only_committed = request.isolation_level == _READ_COMMITTED

        may = {
            name: context.may(needs.LIST_OFFSETS_TOPIC, name)
            for name in dict.fromkeys(topic.name for topic in request.topics)
        }

        def listed(
            topic: str, wanted: messages.ListOffsetsRequestPartitions
        ) -> messages.ListOffsetsResponsePartitionsDict:
            number = wanted.partition_index
            try:
                if not may[topic]:
                    raise RefusedError(needs.LIST_OFFSETS_TOPIC.code, "may not be described")
                if (topic, number) in twice:
                    raise RefusedError(ErrorCode.invalid_request, "named twice")
                log = self._log(topic, number, wanted.current_leader_epoch)
                since = _SPECIAL_SINCE.get(wanted.timestamp, 0 if wanted.timestamp >= 0 else None)
                if since is None or context.api_version < since:
                    raise RefusedError(ErrorCode.unsupported_version, f"time {wanted.timestamp}")
                if log in unseen:
                    raise log.state.failure or RefusedError(
                        ErrorCode.request_timed_out, "the disk takes too long"
                    )
                is_replica = request.replica_id >= 0 and self._table.cluster is not None
                if is_replica and wanted.timestamp == LATEST:  # as far as a follower fetches
                    place = _Place(offset=log.end_offset, epoch=log.epochs.current)
                elif is_replica and wanted.timestamp == EARLIEST:  # what can be fetched from here
                    place = _Place(offset=log.state.start, epoch=_epoch_of(log, log.state.start))
                else:
                    self._check_settled(log, wanted.timestamp)
                    place = _find(log, wanted.timestamp, only_committed=only_committed)
            except Exception as error:  # the API has no room for a text
                return {"partition_index": number, "error_code": refusal(error).code}
            return {
                "partition_index": number,
                "error_code": ErrorCode.none,
                "timestamp": place.timestamp_ms,
                "offset": place.offset,
                "leader_epoch": place.epoch,
            }

        return {
            "topics": [
                {
                    "name": topic.name,
                    "partitions": [listed(topic.name, wanted) for wanted in topic.partitions],
                }
                for topic in request.topics
            ]
        }

    def _check_settled(self, log: PartitionLog, time_ms: int) -> None:
        """Raise while a new leader does not know how far its log is committed: it might go back."""
        replica = self._table.replica_of(log)
        leader = None if replica is None else replica.leader
        if leader is not None and not (leader.knows_committed_end or time_ms in _KNOWN_AT_ONCE):
            code = ErrorCode.offset_not_available
            raise RefusedError(code, "the high watermark is not known yet")

    def _log(self, topic: str, partition: int, epoch: int) -> PartitionLog:
        """The log of a partition. Raises if it is not in the client's `epoch`; -1: any epoch."""
        log = self._table.log(topic, partition)
        if log is None:
            raise RefusedError(self._table.why_absent(topic, partition), "it is not here")
        code = self._table.leader_refusal(log, epoch)
        if code is not None:
            raise RefusedError(code, f"leader epoch {epoch} is not the present one here")
        return log

    # --- OffsetForLeaderEpoch ----------------------------------------------------------------

    def offset_for_leader_epoch(
        self, context: RequestContext, request: messages.OffsetForLeaderEpochRequest
    ) -> messages.OffsetForLeaderEpochResponseDict:
        may_all = context.may(needs.OFFSET_FOR_LEADER_EPOCH_CLUSTER)
        topics: list[messages.OffsetForLeaderEpochResponseTopicsDict] = []
        for topic in request.topics:
            name = topic.topic
            is_allowed = may_all or context.may(needs.OFFSET_FOR_LEADER_EPOCH_TOPIC, name)
            topics.append(
                {
                    "topic": name,
                    "partitions": [
                        self._end_of_epoch(name, wanted)
                        if is_allowed
                        else {
                            "partition": wanted.partition,
                            "error_code": needs.OFFSET_FOR_LEADER_EPOCH_TOPIC.code,
                        }
                        for wanted in topic.partitions
                    ],
                }
            )
        return {"topics": topics}

    def _end_of_epoch(
        self, topic: str, wanted: messages.OffsetForLeaderEpochRequestPartitions
    ) -> messages.OffsetForLeaderEpochResponsePartitionsDict:
        try:
            log = self._log(topic, wanted.partition, wanted.current_leader_epoch)
            epoch = LeaderEpoch(wanted.leader_epoch)
            end = log.epochs.known.end_offset_for(epoch, log.end_offset)
        except Exception as error:  # the API has no room for a text
            return {"partition": wanted.partition, "error_code": refusal(error).code}
        return {
            "partition": wanted.partition,
            "error_code": ErrorCode.none,
            "leader_epoch": end.epoch,
            "end_offset": end.end_offset,
        }


def _find(log: PartitionLog, time_ms: int, *, only_committed: bool) -> _Place:
    """The place that `time_ms` stands for, or the first record at that time or later."""
    end = log.last_stable_offset if only_committed else log.high_watermark
    if time_ms == LATEST:
        return _Place(offset=end, epoch=log.epochs.current)
    if time_ms >= 0 or time_ms == MAX_TIMESTAMP:
        match = find_time(log.source, time_ms)
        if match is None or match.offset >= end:
            return _NOWHERE
        epoch = _epoch_of(log, match.offset)
        return _Place(offset=match.offset, epoch=epoch, timestamp_ms=match.timestamp_ms)
    offset = _special_offset(log, time_ms)
    return _NOWHERE if offset is None else _Place(offset=offset, epoch=_epoch_of(log, offset))


def _special_offset(log: PartitionLog, time_ms: int) -> Offset | None:
    if time_ms == EARLIEST:
        return log.start_offset
    if time_ms == _EARLIEST_LOCAL:
        return log.state.start
    archived_up_to = log.archive.archived_up_to
    if archived_up_to is None:
        return None
    if time_ms == _EARLIEST_TO_ARCHIVE:
        return max(archived_up_to, log.start_offset)
    assert time_ms == _LATEST_ARCHIVED, time_ms
    return Offset(archived_up_to - 1) if archived_up_to > 0 else None


def _epoch_of(log: PartitionLog, offset: Offset) -> LeaderEpoch:
    epoch = log.epochs.known.epoch_of(offset)
    return NO_LEADER_EPOCH if epoch is None else epoch
