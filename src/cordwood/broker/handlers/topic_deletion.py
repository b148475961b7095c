"""DeleteTopics and DeleteRecords."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.error_codes import ErrorCode, RefusedError, refusal
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    routes_on,
    split_repeated,
)
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.security import access_table as needs
from cordwood.broker.security.security_events import Detail
from cordwood.errors import OffsetOutOfRangeError, UnknownTopicError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.log.topics.topic import Topic
from cordwood.protocol.api_catalog import ApiKey
from cordwood.quantities import NO_LEADER_EPOCH, LeaderEpoch, Offset

if TYPE_CHECKING:
    from cordwood.protocol.schemas import topic_messages as messages

logger = logging.getLogger(__name__)

_NIL: Final = UUID(int=0)
_FIRST_BY_TOPIC_ID: Final = 6
_FIRST_WITH_DELETION_DISABLED: Final = 3
_HIGH_WATERMARK: Final = -1  # delete all records
_UNKNOWN: Final = -1
_TIMEOUT_MS_MAX: Final = 300_000
_FIRST_STRICT_DELETION: Final = 5  # its clients know the error that a quota is used up

_Wanted = tuple[str | None, UUID]


class _Deletion(NamedTuple):
    """Records of a partition that were deleted here, as the leader of `led_in`."""

    log: PartitionLog
    start: Offset
    led_in: LeaderEpoch
    result: messages.DeleteRecordsResponsePartitionsDict


class TopicDeletionHandler:
    """Deletes topics and records. Called by workers: it waits for the disk."""

    def __init__(
        self,
        *,
        store: Store,
        table: PartitionTable,
        config: BrokerConfig,
        closed_topics: frozenset[str] = frozenset(),
    ) -> None:
        self._kept_topics = INTERNAL_TOPICS | closed_topics
        self._store = store
        self._table = table
        self._config = config

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.WORKER,
            {
                ApiKey.DELETE_TOPICS: self.delete_topics,
                ApiKey.DELETE_RECORDS: self.delete_records,
            },
        )

    # --- DeleteTopics ------------------------------------------------------------------------

    def delete_topics(
        self, context: RequestContext, request: messages.DeleteTopicsRequest
    ) -> messages.DeleteTopicsResponseDict:
        mutations = context.mutations(is_strict=context.api_version >= _FIRST_STRICT_DELETION)
        wanted: list[_Wanted] = (
            [(topic.name, topic.topic_id) for topic in request.topics]
            if context.api_version >= _FIRST_BY_TOPIC_ID
            else [(name, _NIL) for name in request.topic_names]
        )
        once, repeated = split_repeated(wanted, lambda item: item)
        twice = RefusedError(ErrorCode.invalid_request, "the topic is in the request twice")
        responses: list[messages.DeleteTopicsResponseResponsesDict] = [
            _refused(item, twice) for item in repeated
        ]
        # A name and an id may mean the same topic, which can be deleted only once.
        names = [self._name_of(item) for item in once]
        counts = Counter(names)
        may_delete_all = bool(once) and context.may(needs.DELETE_TOPICS_CLUSTER)
        accepted: list[tuple[_Wanted, Topic[PartitionLog]]] = []
        for item, name in zip(once, names, strict=True):
            try:
                # Before all else: who may not describe a topic must not learn which id it has.
                if not may_delete_all and isinstance(name, str):
                    refused = self._without_access(context, item, name)
                    if refused is not None:
                        responses.append(refused)
                        continue
                if counts[name] > 1:
                    if item[0] is None:  # one answer with both, as in Kafka
                        responses.append(_refused((str(name), item[1]), twice))
                    continue
                topic = self._checked(item, context.api_version)
                mutations.count(topic.partition_count)
                accepted.append((item, topic))
            except Exception as error:
                responses.append(_refused(item, error))
        return {
            "responses": responses + self._delete(context, accepted),
            "throttle_time": mutations.throttle_ms,
        }

    def _delete(
        self, context: RequestContext, accepted: Sequence[tuple[_Wanted, Topic[PartitionLog]]]
    ) -> list[messages.DeleteTopicsResponseResponsesDict]:
        """Delete topics together; one after the other if another client deletes one of them."""
        try:
            if accepted:
                self._store.delete_topics([topic.name for _, topic in accepted])
        except Exception as error:
            if len(accepted) == 1:
                return [_refused(accepted[0][0], error)]
            return [response for item in accepted for response in self._delete(context, [item])]
        for _, topic in accepted:
            logger.info("deleted topic %s", topic.name)
            old: dict[str, Detail] = {
                "topic_id": str(topic.topic_id),
                "partitions": topic.partition_count,
            }
            context.changed("DELETE", "TOPIC", topic.name, old=old)
        return [
            {"name": topic.name, "topic_id": topic.topic_id, "error_code": ErrorCode.none}
            for _, topic in accepted
        ]

    def _name_of(self, item: _Wanted) -> str | UUID:
        """The name of the topic; its id if no topic has that id."""
        name, topic_id = item
        if topic_id == _NIL:
            return name or ""
        topic = self._table.topic(topic_id)
        return topic_id if topic is None else topic.name

    def _without_access(
        self, context: RequestContext, item: _Wanted, name: str
    ) -> messages.DeleteTopicsResponseResponsesDict | None:
        """The refusal of a client that may not delete a topic.

        A client that may describe it is told that it is missing, and the name that an id has.
        """
        given, topic_id = item
        if not name or (given is None) == (topic_id == _NIL):
            return None  # the request itself is wrong
        if not context.may(needs.DELETE_TOPICS_NAME, name):
            code = needs.DELETE_TOPICS_NAME.code
            return {"name": given, "topic_id": topic_id, "error_code": code}
        if self._table.topic(name) is not None and not context.may(needs.DELETE_TOPICS_TOPIC, name):
            code = needs.DELETE_TOPICS_TOPIC.code
            return {"name": name, "topic_id": topic_id, "error_code": code}
        return None

    def _checked(self, item: _Wanted, api_version: int) -> Topic[PartitionLog]:
        name, topic_id = item
        if (name is None) == (topic_id == _NIL):
            raise RefusedError(
                ErrorCode.invalid_request, "a topic must have either a name or an id"
            )
        topic = self._table.topic(topic_id if name is None else name)
        if topic is None:
            if name is not None:
                raise UnknownTopicError(name)
            raise RefusedError(ErrorCode.unknown_topic_id, f"no topic has the id {topic_id}")
        if not self._config.delete_topic_enable:
            raise RefusedError(
                ErrorCode.topic_deletion_disabled
                if api_version >= _FIRST_WITH_DELETION_DISABLED
                else ErrorCode.invalid_request,
                "delete.topic.enable is false",
            )
        if topic.name in self._kept_topics:
            raise RefusedError(
                ErrorCode.policy_violation, f"{topic.name} is internal and cannot be deleted"
            )
        return topic

    # --- DeleteRecords -----------------------------------------------------------------------

    def delete_records(
        self, context: RequestContext, request: messages.DeleteRecordsRequest
    ) -> Response | Deferred:
        """Delete, and answer once the other replicas have deleted too (KIP-107)."""
        begun: list[_Deletion] = []
        response = self._delete_records(context, request, begun)
        cluster = self._table.cluster
        if cluster is None or cluster.is_alone or not begun:
            return response
        later = Deferred()
        left = len(begun)

        def settle(deletion: _Deletion, code: ErrorCode) -> None:
            nonlocal left
            if code:
                deletion.result.update({"low_watermark": _UNKNOWN, "error_code": code})
            left -= 1
            if not left:
                later.resolve(response)

        timeout_s = min(max(request.timeout, 0), _TIMEOUT_MS_MAX) / 1000
        for each in begun:
            cluster.await_deleted(
                each.log, each.start, each.led_in, timeout_s, partial(settle, each)
            )
        return later

    def _delete_records(
        self,
        context: RequestContext,
        request: messages.DeleteRecordsRequest,
        begun: list[_Deletion],
    ) -> messages.DeleteRecordsResponseDict:
        places = [(t.name, p.partition_index) for t in request.topics for p in t.partitions]
        _, repeated = split_repeated(places, lambda place: place)
        topics: list[messages.DeleteRecordsResponseTopicsDict] = []
        for topic in request.topics:
            if context.may(needs.DELETE_RECORDS_TOPIC, topic.name):
                partitions = self._delete_in(
                    context, topic.name, topic.partitions, set(repeated), begun
                )
            else:
                partitions = [
                    {
                        "partition_index": partition.partition_index,
                        "low_watermark": _UNKNOWN,
                        "error_code": needs.DELETE_RECORDS_TOPIC.code,
                    }
                    for partition in topic.partitions
                ]
            topics.append({"name": topic.name, "partitions": partitions})
        return {"topics": topics}

    def _delete_in(
        self,
        context: RequestContext,
        topic: str,
        partitions: Sequence[messages.DeleteRecordsRequestPartitions],
        repeated: set[tuple[str, int]],
        begun: list[_Deletion],
    ) -> list[messages.DeleteRecordsResponsePartitionsDict]:
        results: list[messages.DeleteRecordsResponsePartitionsDict] = []
        for partition in partitions:
            number = partition.partition_index
            result: messages.DeleteRecordsResponsePartitionsDict = {
                "partition_index": number,
                "low_watermark": _UNKNOWN,
            }
            try:
                if (topic, number) in repeated:
                    raise RefusedError(ErrorCode.invalid_request, "named twice")
                log = self._log(topic, number)
                led_in = self._table.led_in(log)
                before, start = self._delete_before(log, partition.offset, led_in)
                result |= {"low_watermark": start, "error_code": ErrorCode.none}
                if led_in is not None:
                    begun.append(_Deletion(log, start, led_in, result))
                context.changed(
                    "DELETE",
                    "TOPIC",
                    topic,
                    old={"partition": number, "log_start_offset": before},
                    new={"partition": number, "log_start_offset": start},
                )
            except Exception as error:
                result["error_code"] = refusal(error).code
            results.append(result)
        return results

    def _log(self, topic: str, number: int) -> PartitionLog:
        if topic in self._kept_topics:
            raise RefusedError(ErrorCode.invalid_topic_exception, f"{topic} is internal")
        return self._store.topic(topic).partition(number)

    def _delete_before(
        self, log: PartitionLog, offset: int, led_in: LeaderEpoch | None
    ) -> tuple[Offset, Offset]:
        """The start of the log before and after it.

        A broker that is deposed meanwhile deletes nothing: the log checks `led_in` by itself.
        """
        code = self._table.leader_refusal(log, NO_LEADER_EPOCH)
        if code is not None:
            raise RefusedError(code, "another broker leads the partition")
        if log.config.is_compacted and not log.config.is_deleted:
            raise RefusedError(
                ErrorCode.policy_violation, "records of a compacted topic cannot be deleted"
            )
        promises = log.promises
        if promises.are_ahead_of_readers:
            promises.await_durable(promises.acknowledged_end)  # a client deletes what it knows of
        view = log.view()
        if offset == _HIGH_WATERMARK:
            offset = view.high_watermark
        elif offset < 0:
            raise OffsetOutOfRangeError(Offset(offset), start=view.start, end=view.high_watermark)
        return view.start, log.delete_before(offset, led_in=led_in)


def _refused(item: _Wanted, error: Exception) -> messages.DeleteTopicsResponseResponsesDict:
    name, topic_id = item
    code, message = refusal(error)
    return {"name": name, "topic_id": topic_id, "error_code": code, "error_message": message}
