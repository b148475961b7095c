"""OffsetCommit and OffsetDelete: changing the offsets that groups have committed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Final

from cordwood.broker.cluster_view import ClusterView
from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.groups.managed_group import EpochGroup, is_subscribed
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    routes_on,
)
from cordwood.broker.records.partition_table import NamedTopic, name_topics
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.security_events import Detail
from cordwood.format.groups.group_fields import STRING_BYTES_MAX
from cordwood.log.topics.committed_offsets import CommittedOffset, TopicPartition
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.message_schema import NIL_UUID
from cordwood.quantities import (
    NO_TIMESTAMP,
    LeaderEpoch,
    Offset,
    TimestampMs,
)

if TYPE_CHECKING:
    from cordwood.protocol.schemas import offset_messages as messages

_FIRST_BY_TOPIC_ID: Final = 10
_FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND: Final = 9
_FIRST_COMMIT_WITH_EPOCH: Final = 9
_NO_RETENTION_TIME: Final = -1
_REPORTED_MAX: Final = 100  # partitions in one event of the audit log

_Codes = Mapping[TopicPartition, ErrorCode]


class GroupOffsetsHandler:
    """Commits and deletes offsets, for groups of any kind. Called in the control loop."""

    def __init__(self, *, coordinator: GroupCoordinator, view: ClusterView) -> None:
        self._coordinator = coordinator
        self._view = view

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.CONTROL,
            {
                ApiKey.OFFSET_COMMIT: self.offset_commit,
                ApiKey.OFFSET_DELETE: self.offset_delete,
            },
        )

    # --- OffsetCommit ------------------------------------------------------------------------

    def offset_commit(
        self, context: RequestContext, request: messages.OffsetCommitRequest
    ) -> Response | Deferred:
        topics = name_topics(
            self._view,
            [
                (t.name, t.topic_id, [p.partition_index for p in t.partitions])
                for t in request.topics
            ],
            by_id=context.api_version >= _FIRST_BY_TOPIC_ID,
        )
        if not context.may(needs.OFFSET_COMMIT_GROUP, request.group_id):
            return _committed(topics, {}, needs.OFFSET_COMMIT_GROUP.code)
        codes = _refused_topics(context, needs.OFFSET_COMMIT_TOPIC, topics)
        refusal = self._check_commit(context, request)
        if refusal is not None:
            return _committed(topics, codes, refusal)
        wanted = self._committable(request, topics, codes)
        if not wanted:
            return _committed(topics, codes, ErrorCode.none)
        reply = Deferred()
        # A client that is no member of the group sets its offsets.
        old = {} if request.member_id else self._offsets_of(request.group_id, wanted)

        def finish(code: ErrorCode) -> None:
            timer.cancel()
            if code is ErrorCode.none and not request.member_id:
                shown = islice(wanted.items(), _REPORTED_MAX)
                new = _reported({place: had.offset for place, had in shown}, len(wanted))
                context.changed("ALTER", "GROUP", request.group_id, old=old, new=new)
            reply.resolve(_committed(topics, codes, code))

        timer = self._coordinator.scheduler.call_later(
            self._coordinator.config.offsets_commit_timeout_ms / 1000,
            lambda: finish(ErrorCode.coordinator_not_available),
        )
        self._coordinator.keeper.commit(request.group_id, wanted, finish)
        return reply

    def _offsets_of(self, group_id: str, places: Collection[TopicPartition]) -> dict[str, Detail]:
        """The offsets that a group has, for the audit log; None: it has none."""
        shown = islice(places, _REPORTED_MAX)
        return _reported(self._coordinator.keeper.at(group_id, shown), len(places))

    def _check_commit(
        self, context: RequestContext, request: messages.OffsetCommitRequest
    ) -> ErrorCode | None:
        refusal = self._coordinator.refusal(request.group_id, allows_empty=True)
        if refusal is not None:
            return refusal
        group = self._coordinator.find(request.group_id)
        epoch = request.generation_id_or_member_epoch
        if group is None:
            if epoch < 0:
                return None  # a consumer without a group protocol, or an admin: creates the group
            if context.api_version >= _FIRST_COMMIT_WITH_GROUP_ID_NOT_FOUND:
                return ErrorCode.group_id_not_found
            return ErrorCode.illegal_generation
        if isinstance(group, ClassicGroup):
            code = group.validate_commit(request.member_id, epoch, request.group_instance_id)
        else:
            code = self._check_member(context, group, request)
        return None if code is ErrorCode.none else code

    def _check_member(
        self,
        context: RequestContext,
        group: EpochGroup,
        request: messages.OffsetCommitRequest,
    ) -> ErrorCode:
        """Whether a member may commit at all. Old epochs are checked for each partition later."""
        code = group.validate_commit(request.member_id, request.generation_id_or_member_epoch)
        if code is ErrorCode.unknown_member_id or group.is_empty:
            return code
        if context.api_version < _FIRST_COMMIT_WITH_EPOCH:
            return ErrorCode.unsupported_version
        return ErrorCode.none

    def _check_epoch(
        self, request: messages.OffsetCommitRequest, topic: NamedTopic, number: int
    ) -> ErrorCode:
        group = self._coordinator.groups.get(request.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return ErrorCode.none
        epoch = request.generation_id_or_member_epoch
        return group.validate_partition_commit(request.member_id, epoch, topic.name or "", number)

    def _committable(
        self,
        request: messages.OffsetCommitRequest,
        topics: list[NamedTopic],
        codes: dict[TopicPartition, ErrorCode],
    ) -> dict[TopicPartition, CommittedOffset]:
        """The offsets that can be committed. The errors of all others go to `codes`.

        It has the partitions already that the client may not commit.
        """
        now_ms = self._coordinator.clock.now_ms()
        expires_ms = NO_TIMESTAMP
        if request.retention_time != _NO_RETENTION_TIME:
            expires_ms = TimestampMs(now_ms + max(request.retention_time, 0))
        wanted: dict[TopicPartition, CommittedOffset] = {}
        for topic, asked in zip(topics, request.topics, strict=True):
            for partition in asked.partitions:
                place = topic.place(partition.partition_index)
                if codes.get(place) is needs.OFFSET_COMMIT_TOPIC.code:
                    continue
                code = self._check_place(topic, partition.partition_index)
                metadata = partition.committed_metadata or ""
                if code is ErrorCode.none:
                    code = self._check_epoch(request, topic, partition.partition_index)
                if code is ErrorCode.none and self._is_too_long(metadata):
                    code = ErrorCode.offset_metadata_too_large
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

    def _check_place(self, topic: NamedTopic, number: int) -> ErrorCode:
        if topic.name is None:
            return ErrorCode.unknown_topic_id
        known = self._view.topic(topic.name)
        if known is None or not 0 <= number < known.partition_count:
            return ErrorCode.unknown_topic_or_partition
        return ErrorCode.none

    # --- OffsetDelete ------------------------------------------------------------------------

    def offset_delete(
        self, context: RequestContext, request: messages.OffsetDeleteRequest
    ) -> Response | Deferred:
        if not context.may(needs.OFFSET_DELETE_GROUP, request.group_id):
            return {"error_code": needs.OFFSET_DELETE_GROUP.code}
        refusal = self._coordinator.refusal(request.group_id)
        if refusal is not None:
            return {"error_code": refusal}
        return self._coordinator.with_offsets(
            [request.group_id], lambda code: self._delete(context, request, code)
        )

    def _delete(
        self, context: RequestContext, request: messages.OffsetDeleteRequest, code: ErrorCode
    ) -> Response | Deferred:
        if code is not ErrorCode.none:
            return {"error_code": ErrorCode.coordinator_not_available}
        group = self._coordinator.find(request.group_id)
        if group is None:
            return {"error_code": ErrorCode.group_id_not_found}
        if not group.is_empty and group.protocol_type != "consumer":
            return {"error_code": ErrorCode.non_empty_group}  # it is unknown what it reads
        topics = name_topics(
            self._view,
            [(t.name, NIL_UUID, [p.partition_index for p in t.partitions]) for t in request.topics],
            by_id=False,
        )
        codes = _refused_topics(context, needs.OFFSET_DELETE_TOPIC, topics)
        refused_topics = {name for name, _ in codes}
        for topic in topics:
            if topic.name in refused_topics:
                continue
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
        old = self._offsets_of(request.group_id, places)

        def appended(code: ErrorCode) -> None:
            if not code:
                context.changed("DELETE", "GROUP", request.group_id, old=old)
            reply.resolve(_deleted(topics, codes) if not code else {"error_code": code})

        self._coordinator.group_log.append(request.group_id, records, appended)
        return reply


def _reported(offsets: Mapping[TopicPartition, int | None], count: int) -> dict[str, Detail]:
    """As the audit log has them; there are `count` in all."""
    shown: dict[str, Detail] = {
        f"{topic}-{partition}": offset for (topic, partition), offset in offsets.items()
    }
    if count > len(offsets):
        shown["more"] = count - len(offsets)
    return shown


def _refused_topics(
    context: RequestContext, need: needs.Need, topics: list[NamedTopic]
) -> dict[TopicPartition, ErrorCode]:
    """The partitions of topics that the client may not use. That an id is unknown is no secret."""
    return {
        topic.place(number): need.code
        for topic in topics
        if topic.name is not None and not context.may(need, topic.name)
        for number in topic.numbers
    }


def _committed(
    topics: list[NamedTopic], codes: _Codes, code: ErrorCode
) -> messages.OffsetCommitResponseDict:
    """`codes` has the partitions that were refused; `code` is the result of all others."""
    return {
        "topics": [
            {
                "name": topic.name or "",
                "topic_id": topic.topic_id,
                "partitions": _coded(topic, codes, code),
            }
            for topic in topics
        ]
    }


def _deleted(topics: list[NamedTopic], codes: _Codes) -> messages.OffsetDeleteResponseDict:
    return {
        "error_code": ErrorCode.none,
        "topics": [
            {"name": topic.name or "", "partitions": _coded(topic, codes, ErrorCode.none)}
            for topic in topics
        ],
    }


def _coded(
    topic: NamedTopic, codes: _Codes, code: ErrorCode
) -> list[messages.OffsetCommitResponsePartitionsDict]:
    return [
        {"partition_index": number, "error_code": codes.get(topic.place(number), code)}
        for number in topic.numbers
    ]
