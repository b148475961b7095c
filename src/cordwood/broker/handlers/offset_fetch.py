"""OffsetFetch: the offsets that groups have committed."""

from __future__ import annotations

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from typing import TYPE_CHECKING, Final

from cordwood.broker.cluster_view import ClusterView
from cordwood.broker.groups.classic.classic_group import ClassicGroup
from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    routes_on,
)
from cordwood.broker.records.partition_table import AskedTopic, NamedTopic, name_topics
from cordwood.broker.security import access_table as needs
from cordwood.log.topics.committed_offsets import CommittedOffset, GroupOffsets, TopicPartition
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.message_schema import NIL_UUID
from cordwood.quantities import NO_LEADER_EPOCH, NO_OFFSET
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.protocol.schemas import offset_messages as messages

_FIRST_BY_TOPIC_ID: Final = 10
_FIRST_FETCH_OF_MANY: Final = 8
_FIRST_FETCH_WITH_ERROR_CODE: Final = 2
_NO_MEMBER_EPOCH: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _WantedOffsets:
    """What OffsetFetch asks of one group. `topics` is None for all of them."""

    group_id: str
    member_id: str | None
    member_epoch: int
    topics: Sequence[AskedTopic] | None
    require_stable: bool


class OffsetFetchHandler:
    """Reports offsets, for groups of any kind. Called in the control loop."""

    def __init__(self, *, coordinator: GroupCoordinator, view: ClusterView) -> None:
        self._coordinator = coordinator
        self._view = view

    def routes(self) -> list[Route]:
        return routes_on(RunsOn.CONTROL, {ApiKey.OFFSET_FETCH: self.offset_fetch})

    def offset_fetch(
        self, context: RequestContext, request: messages.OffsetFetchRequest
    ) -> Response | Deferred:
        if context.api_version >= _FIRST_FETCH_OF_MANY:
            stable = request.require_stable
            wanted: list[_WantedOffsets] = []
            refused: list[messages.OffsetFetchResponseGroupsDict] = []
            for asked in request.groups:
                group = _wanted_of(asked, require_stable=stable)
                if context.may(needs.OFFSET_FETCH_GROUP, group.group_id):
                    wanted.append(group)
                else:
                    refused.append(_refused_group(group))
            if not wanted:
                return {"groups": refused}
            return self._coordinator.with_offsets(
                [group.group_id for group in wanted],
                lambda code: {
                    "groups": refused + [self._fetched(context, group, code) for group in wanted]
                },
            )
        topics = request.topics
        sole = _WantedOffsets(
            group_id=request.group_id,
            member_id=None,
            member_epoch=_NO_MEMBER_EPOCH,
            topics=None
            if topics is None
            else [(topic.name, NIL_UUID, topic.partition_indexes) for topic in topics],
            require_stable=request.require_stable,
        )
        if not context.may(needs.OFFSET_FETCH_GROUP, sole.group_id):
            return _fetched_of_one(context, sole, _refused_group(sole))
        return self._coordinator.with_offsets(
            [sole.group_id],
            lambda code: _fetched_of_one(context, sole, self._fetched(context, sole, code)),
        )

    def _fetched(
        self, context: RequestContext, wanted: _WantedOffsets, code: ErrorCode
    ) -> messages.OffsetFetchResponseGroupsDict:
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
        pending: AbstractSet[TopicPartition] = frozenset()
        if wanted.require_stable:
            pending = self._coordinator.keeper.pending(group_id)
        return {
            "group_id": group_id,
            "error_code": ErrorCode.none,
            "topics": self._all_topics(context, offsets, pending)
            if wanted.topics is None
            else [
                _fetched_topic(topic, offsets, pending, is_allowed=_may_see(context, topic))
                for topic in self._named(context, wanted.topics)
            ],
        }

    def _named(self, context: RequestContext, topics: Sequence[AskedTopic]) -> list[NamedTopic]:
        by_id = context.api_version >= _FIRST_BY_TOPIC_ID
        return name_topics(self._view, topics, by_id=by_id)

    def _check_fetch(self, wanted: _WantedOffsets) -> ErrorCode | None:
        group = self._coordinator.groups.get(wanted.group_id)
        if group is None or isinstance(group, ClassicGroup):
            return None
        code = group.validate_fetch(wanted.member_id, wanted.member_epoch)
        return None if code is ErrorCode.none else code

    def _all_topics(
        self,
        context: RequestContext,
        offsets: GroupOffsets,
        pending: AbstractSet[TopicPartition],
    ) -> list[messages.OffsetFetchResponseGroupsTopicsDict]:
        by_topic: dict[str, list[messages.OffsetFetchResponseGroupsTopicsPartitionsDict]] = {}
        for name, number in sorted({*offsets, *pending}):
            if not context.may(needs.OFFSET_FETCH_ALL, name):
                continue
            place = (name, number)
            fetched = (
                _unstable_partition(number)
                if place in pending
                else _fetched_partition(number, offsets[place])
            )
            by_topic.setdefault(name, []).append(fetched)
        found: list[messages.OffsetFetchResponseGroupsTopicsDict] = []
        for name, partitions in by_topic.items():
            topic = self._view.topic(name)
            if topic is not None:
                found.append({"name": name, "topic_id": topic.topic_id, "partitions": partitions})
            elif context.api_version < _FIRST_BY_TOPIC_ID:  # later versions cannot name it
                found.append({"name": name, "partitions": partitions})
        return found


def _wanted_of(group: messages.OffsetFetchRequestGroups, *, require_stable: bool) -> _WantedOffsets:
    topics = group.topics
    return _WantedOffsets(
        group_id=group.group_id,
        member_id=group.member_id,
        member_epoch=group.member_epoch,
        topics=None
        if topics is None
        else [(topic.name, topic.topic_id, topic.partition_indexes) for topic in topics],
        require_stable=require_stable,
    )


def _may_see(context: RequestContext, topic: NamedTopic) -> bool:
    """That no topic has an id is no secret."""
    return topic.name is None or context.may(needs.OFFSET_FETCH_TOPIC, topic.name)


def _refused_group(wanted: _WantedOffsets) -> messages.OffsetFetchResponseGroupsDict:
    return {
        "group_id": wanted.group_id,
        "error_code": needs.OFFSET_FETCH_GROUP.code,
        "topics": [],
    }


def _fetched_topic(
    topic: NamedTopic,
    offsets: GroupOffsets,
    pending: AbstractSet[TopicPartition],
    *,
    is_allowed: bool,
) -> messages.OffsetFetchResponseGroupsTopicsDict:
    if not is_allowed:
        code, offsets, pending = needs.OFFSET_FETCH_TOPIC.code, {}, frozenset()
    else:
        code = ErrorCode.unknown_topic_id if topic.name is None else ErrorCode.none
    return {
        "name": topic.name or "",
        "topic_id": topic.topic_id,
        "partitions": [
            _unstable_partition(number)
            if topic.place(number) in pending
            else _fetched_partition(number, offsets.get(topic.place(number)), code)
            for number in topic.numbers
        ],
    }


def _fetched_partition(
    number: int, committed: CommittedOffset | None, code: int = ErrorCode.none
) -> messages.OffsetFetchResponseGroupsTopicsPartitionsDict:
    return {
        "partition_index": number,
        "committed_offset": NO_OFFSET if committed is None else committed.offset,
        "committed_leader_epoch": NO_LEADER_EPOCH if committed is None else committed.leader_epoch,
        "metadata": "" if committed is None else committed.metadata,
        "error_code": code,
    }


def _unstable_partition(number: int) -> messages.OffsetFetchResponseGroupsTopicsPartitionsDict:
    """A transaction that is open may still change the offset: the client asks again."""
    return _fetched_partition(number, None, ErrorCode.unstable_offset_commit)


def _fetched_of_one(
    context: RequestContext,
    wanted: _WantedOffsets,
    fetched: messages.OffsetFetchResponseGroupsDict,
) -> messages.OffsetFetchResponseDict:
    """The answer of versions that ask about one group: its topics have names and no ids."""
    code = fetched["error_code"]
    topics: list[messages.OffsetFetchResponseTopicsDict] = [
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
