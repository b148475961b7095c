"""Committing, asking for and deleting the offsets of groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.groups.journal.managed_group import EpochGroup, is_subscribed
from cordwood.broker.net.request import Deferred, RequestContext, Response, Route, RunsOn, routes_on
from cordwood.format.groups.group_fields import STRING_BYTES_MAX
from cordwood.log.store.store import Store
from cordwood.log.topics.committed_offsets import CommittedOffset, GroupOffsets, TopicPartition
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import (
    NO_LEADER_EPOCH,
    NO_OFFSET,
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
)

if TYPE_CHECKING:
    from cordwood.protocol.schemas.offset_messages import (
        OffsetCommitRequest,
        OffsetCommitResponseDict,
        OffsetDeleteRequest,
        OffsetDeleteResponseDict,
        OffsetFetchRequest,
        OffsetFetchRequestGroups,
        OffsetFetchResponseDict,
        OffsetFetchResponseGroupsDict,
        OffsetFetchResponseGroupsTopicsDict,
        OffsetFetchResponseGroupsTopicsPartitionsDict,
        OffsetFetchResponseTopicsDict,
    )

_FIRST_BY_TOPIC_ID: Final = 10
_FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND: Final = 9
_FIRST_COMMIT_WITH_EPOCH: Final = 9
_FIRST_FETCH_OF_MANY: Final = 8
_FIRST_FETCH_WITH_ERROR_CODE: Final = 2
_NO_RETENTION_TIME: Final = -1
_NO_MEMBER_EPOCH: Final = -1
_NIL: Final = UUID(int=0)

_AskedTopic = tuple[str, UUID, Sequence[int]]  # name or id, and partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class _NamedTopic:
    """A topic of a request, with its partitions. `name` is None if no topic has the id."""

    name: str | None
    topic_id: UUID
    numbers: Sequence[int]

    def place(self, number: int) -> TopicPartition:
        return self.name or "", number


@dataclass(frozen=True, slots=True, kw_only=True)
class _WantedOffsets:
    """What OffsetFetch asks of one group. `topics` is None for all of them."""

    group_id: str
    member_id: str | None
    member_epoch: int
    topics: Sequence[_AskedTopic] | None


class GroupOffsetsHandler:
    """Requests about committed offsets, of groups of any kind. Called in the control loop."""

    def __init__(self, *, coordinator: GroupCoordinator, store: Store) -> None:
        self._coordinator = coordinator
        self._store = store

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.CONTROL,
            {
                ApiKey.OFFSET_COMMIT: self.offset_commit,
                ApiKey.OFFSET_FETCH: self.offset_fetch,
                ApiKey.OFFSET_DELETE: self.offset_delete,
            },
        )

    # --- OffsetCommit ------------------------------------------------------------------------

    def offset_commit(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> Response | Deferred:
        topics = self._named(
            context,
            [
                (t.name, t.topic_id, [p.partition_index for p in t.partitions])
                for t in request.topics
            ],
        )
        refusal = self._check_commit(context, request)
        if refusal is not None:
            return _committed(topics, {}, refusal)
        codes: dict[TopicPartition, ErrorCode] = {}
        wanted = self._committable(request, topics, codes)
        if not wanted:
            return _committed(topics, codes, ErrorCode.none)
        reply = Deferred()

        def finish(code: ErrorCode) -> None:
            timer.cancel()
            reply.resolve(_committed(topics, codes, code))

        timer = self._coordinator.scheduler.call_later(
            self._coordinator.config.offsets_commit_timeout_ms / 1000,
            lambda: finish(ErrorCode.coordinator_not_available),
        )
        self._coordinator.keeper.commit(request.group_id, wanted, finish)
        return reply

    def _check_commit(
        self, context: RequestContext, request: OffsetCommitRequest
    ) -> ErrorCode | None:
        refusal = self._coordinator.refusal(request.group_id, allows_empty=True)
        if refusal is not None:
            return refusal
        group = self._coordinator.find(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is None:
            if epoch < 0:
                return None  # a consumer that assigns itself, or an admin: the group begins here
            if context.api_version >= _FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND:
                return ErrorCode.group_id_not_found
            return ErrorCode.illegal_generation
        if isinstance(group, ClassicGroup):
            code = group.validate_commit(request.member_id, epoch, request.group_instance_id)
        else:
            code = self._check_member(context, group, request)
        return None if code is ErrorCode.none else code

    def _check_member(
        self, context: RequestContext, group: EpochGroup, request: OffsetCommitRequest
    ) -> ErrorCode:
        """Whether a member may commit at all; an epoch that is past is asked of each partition."""
        code = group.validate_commit(request.member_id, request.generation_id_or_member_epoch)
        if code is ErrorCode.unknown_member_id or group.is_empty:
            return code
        if context.api_version < _FIRST_COMMIT_WITH_EPOCH:
            return ErrorCode.unsupported_version
        return ErrorCode.none

    def _check_epoch(
        self, request: OffsetCommitRequest, topic: _NamedTopic, number: int
    ) -> ErrorCode:
        group = self._coordinator.groups.get(request.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return ErrorCode.none
        epoch = request.generation_id_or_member_epoch
        return group.validate_partition_commit(request.member_id, epoch, topic.name or "", number)

    def _committable(
        self,
        request: OffsetCommitRequest,
        topics: list[_NamedTopic],
        codes: dict[TopicPartition, ErrorCode],
    ) -> dict[TopicPartition, CommittedOffset]:
        """What can be committed; why the rest cannot goes to `codes`."""
        now_ms = self._coordinator.clock.now_ms()
        expires_ms = NO_TIMESTAMP
        if request.retention_time != _NO_RETENTION_TIME:
            expires_ms = TimestampMs(now_ms + max(request.retention_time, 0))
        wanted: dict[TopicPartition, CommittedOffset] = {}
        for topic, asked in zip(topics, request.topics, strict=True):
            for partition in asked.partitions:
                place = topic.place(partition.partition_index)
                code = self._check_place(topic, partition.partition_index)
                metadata = partition.committed_metadata or ""
                if code is ErrorCode.none:
                    code = self._check_epoch(request, topic, partition.partition_index)
                if code is ErrorCode.none and self._is_too_long(metadata):
                    code = ErrorCode.offset_metadata_too_large
                if code is ErrorCode.none and partition.committed_offset < 0:
                    code = ErrorCode.invalid_request
                if code is not ErrorCode.none:
                    codes[place] = code
                    continue
                wanted[place] = CommittedOffset(
                    offset=Offset(partition.committed_offset),
                    leader_epoch=LeaderEpoch(partition.committed_leader_epoch),
                    metadata=metadata,
                    committed_ms=now_ms,
                    expires_ms=expires_ms,
                    topic_id=topic.topic_id,
                )
        return wanted

    def _is_too_long(self, metadata: str) -> bool:
        if len(metadata) > self._coordinator.config.offset_metadata_max_bytes:
            return True
        return len(metadata) * 4 > STRING_BYTES_MAX and len(metadata.encode()) > STRING_BYTES_MAX

    # --- topics of requests ------------------------------------------------------------------

    def _named(self, context: RequestContext, topics: Iterable[_AskedTopic]) -> list[_NamedTopic]:
        if context.api_version >= _FIRST_BY_TOPIC_ID:
            names = self._store.topic_names_by_id()
            return [
                _NamedTopic(name=names.get(topic_id), topic_id=topic_id, numbers=numbers)
                for _, topic_id, numbers in topics
            ]
        found: list[_NamedTopic] = []
        for name, _, numbers in topics:
            topic = self._store.find_topic(name)
            topic_id = _NIL if topic is None else topic.topic_id
            found.append(_NamedTopic(name=name, topic_id=topic_id, numbers=numbers))
        return found

    def _check_place(self, topic: _NamedTopic, number: int) -> ErrorCode:
        if topic.name is None:
            return ErrorCode.unknown_topic_id
        known = self._store.find_topic(topic.name)
        if known is None or not 0 <= number < known.partition_count:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.none

    # --- OffsetFetch -------------------------------------------------------------------------

    def offset_fetch(
        self, context: RequestContext, request: OffsetFetchRequest
    ) -> Response | Deferred:
        if context.api_version >= _FIRST_FETCH_OF_MANY:
            wanted = [_wanted_of(group) for group in request.groups]
            return self._coordinator.with_offsets(
                [group.group_id for group in wanted],
                lambda code: {"groups": [self._fetched(context, group, code) for group in wanted]},
            )
        topics = request.topics
        sole = _WantedOffsets(
            group_id=request.group_id,
            member_id=None,
            member_epoch=_NO_MEMBER_EPOCH,
            topics=None
            if topics is None
            else [(topic.name, _NIL, topic.partition_indexes) for topic in topics],
        )
        return self._coordinator.with_offsets(
            [sole.group_id],
            lambda code: _fetched_of_one(context, sole, self._fetched(context, sole, code)),
        )

    def _fetched(
        self, context: RequestContext, wanted: _WantedOffsets, code: ErrorCode
    ) -> OffsetFetchResponseGroupsDict:
        """What one group committed."""
        group_id = wanted.group_id
        refusal = self._coordinator.refusal(group_id, allows_empty=True)
        if refusal is None and code is not ErrorCode.none:
            refusal = ErrorCode.coordinator_not_available
        if refusal is None:
            refusal = self._check_fetch(wanted)
        if refusal is not None:
            return {"group_id": group_id, "error_code": refusal, "topics": []}
        offsets = self._coordinator.keeper.of_group(group_id)
        return {
            "group_id": group_id,
            "error_code": ErrorCode.none,
            "topics": self._all_topics(context, offsets)
            if wanted.topics is None
            else [_fetched_topic(t, offsets) for t in self._named(context, wanted.topics)],
        }

    def _check_fetch(self, wanted: _WantedOffsets) -> ErrorCode | None:
        group = self._coordinator.groups.get(wanted.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return None
        code = group.validate_fetch(wanted.member_id, wanted.member_epoch)
        return None if code is ErrorCode.none else code

    def _all_topics(
        self, context: RequestContext, offsets: GroupOffsets
    ) -> list[OffsetFetchResponseGroupsTopicsDict]:
        by_topic: dict[str, list[OffsetFetchResponseGroupsTopicsPartitionsDict]] = {}
        for (name, number), committed in sorted(offsets.items(), key=lambda item: item[0]):
            by_topic.setdefault(name, []).append(_fetched_partition(number, committed))
        found: list[OffsetFetchResponseGroupsTopicsDict] = []
        for name, partitions in by_topic.items():
            topic = self._store.find_topic(name)
            if topic is not None:
                found.append({"name": name, "topic_id": topic.topic_id, "partitions": partitions})
            elif context.api_version < _FIRST_BY_TOPIC_ID:  # later versions cannot name it
                found.append({"name": name, "partitions": partitions})
        return found

    # --- OffsetDelete ------------------------------------------------------------------------

    def offset_delete(
        self, context: RequestContext, request: OffsetDeleteRequest
    ) -> Response | Deferred:
        refusal = self._coordinator.refusal(request.group_id)
        if refusal is not None:
            return {"error_code": refusal}
        return self._coordinator.with_offsets(
            [request.group_id], lambda code: self._delete(context, request, code)
        )

    def _delete(
        self, context: RequestContext, request: OffsetDeleteRequest, code: ErrorCode
    ) -> Response | Deferred:
        if code is not ErrorCode.none:
            return {"error_code": ErrorCode.coordinator_not_available}
        group = self._coordinator.find(request.group_id)
        if group is None:
            return {"error_code": ErrorCode.group_id_not_found}
        if not group.is_empty and group.protocol_type != "consumer":
            return {"error_code": ErrorCode.non_empty_group}  # it is unknown what it reads
        topics = self._named(
            context,
            [(t.name, _NIL, [p.partition_index for p in t.partitions]) for t in request.topics],
        )
        codes: dict[TopicPartition, ErrorCode] = {}
        for topic in topics:
            is_read = topic.name is not None and is_subscribed(group, topic.name)
            for number in topic.numbers:
                refused = self._check_place(topic, number)
                if refused is ErrorCode.none and is_read:
                    refused = ErrorCode.group_subscribed_to_topic
                codes[topic.place(number)] = refused
        places = [place for place, refused in codes.items() if refused is ErrorCode.none]
        records = self._coordinator.keeper.tombstones(request.group_id, places)
        if not records:
            return _deleted(topics, codes)
        reply = Deferred()

        def appended(code: ErrorCode) -> None:
            reply.resolve(_deleted(topics, codes) if not code else {"error_code": code})

        self._coordinator.group_log.append(request.group_id, records, appended)
        return reply


def _wanted_of(group: OffsetFetchRequestGroups) -> _WantedOffsets:
    topics = group.topics
    return _WantedOffsets(
        group_id=group.group_id,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        topics=None
        if topics is None
        else [(topic.name, topic.topic_id, topic.partition_indexes) for topic in topics],
    )


def _committed(
    topics: list[_NamedTopic], codes: Mapping[TopicPartition, ErrorCode], code: ErrorCode
) -> OffsetCommitResponseDict:
    """`codes` has the partitions that were refused; `code` is the result of all others."""
    return {
        "topics": [
            {
                "name": topic.name or "",
                "topic_id": topic.topic_id,
                "partitions": [
                    {
                        "partition_index": number,
                        "error_code": codes.get(topic.place(number), code),
                    }
                    for number in topic.numbers
                ],
            }
            for topic in topics
        ]
    }


def _deleted(
    topics: list[_NamedTopic], codes: Mapping[TopicPartition, ErrorCode]
) -> OffsetDeleteResponseDict:
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {
                "name": topic.name or "",
                "partitions": [
                    {"partition_index": number, "error_code": codes[topic.place(number)]}
                    for number in topic.numbers
                ],
            }
            for topic in topics
        ],
    }


def _fetched_topic(
    topic: _NamedTopic, offsets: GroupOffsets
) -> OffsetFetchResponseGroupsTopicsDict:
    code = ErrorCode.unknown_topic_id if topic.name is None else ErrorCode.none
    return {
        "name": topic.name or "",
        "topic_id": topic.topic_id,
        "partitions": [
            _fetched_partition(number, offsets.get(topic.place(number)), code)
            for number in topic.numbers
        ],
    }


def _fetched_partition(
    number: int, committed: CommittedOffset | None, code: int = ErrorCode.none
) -> OffsetFetchResponseGroupsTopicsPartitionsDict:
    return {
        "partition_index": number,
        "committed_offset": NO_OFFSET if committed is None else committed.offset,
        "committed_leader_epoch": NO_LEADER_EPOCH if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": code,
    }


def _fetched_of_one(
    context: RequestContext, wanted: _WantedOffsets, fetched: OffsetFetchResponseGroupsDict
) -> OffsetFetchResponseDict:
    """The answer of versions that ask about one group: its topics have names and no ids."""
    code = fetched["error_code"]
    topics: list[OffsetFetchResponseTopicsDict] = [
        {"name": topic["name"], "partitions": topic["partitions"]} for topic in fetched["topics"]
    ]
    if code and context.api_version < _FIRST_FETCH_WITH_ERROR_CODE:
        topics = [
            {
                "name": name,
                "partitions": [_fetched_partition(number, None, code) for number in numbers],
            }
            for name, _, numbers in wanted.topics or ()
        ]
    return {"error_code": code, "topics": topics}
