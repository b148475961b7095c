"""DescribeTopicPartitions: topics and their leaders, page by page. Touches no disk."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cordwood.broker.cluster_view import ClusterView, TopicView
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.error_codes import ErrorCode
from cordwood.broker.net.requests.request import RequestContext, Route, RunsOn, routes_on
from cordwood.broker.records.topic_names import why_unknown
from cordwood.broker.security import access_table as needs
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.protocol.acl_codes import AclResource
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages


class TopicPartitionsHandler:
    """Describes partitions. Called in the control loop."""

    def __init__(self, view: ClusterView, config: BrokerConfig) -> None:
        self._view = view
        self._config = config

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.ANYWHERE, {ApiKey.DESCRIBE_TOPIC_PARTITIONS: self.describe_topic_partitions}
        )

    def describe_topic_partitions(
        self, context: RequestContext, request: messages.DescribeTopicPartitionsRequest
    ) -> messages.DescribeTopicPartitionsResponseDict:
        """Topics in the order of their names, from the cursor on, up to a limit of partitions."""
        cursor = request.cursor
        wanted = sorted({item.name for item in request.topics})
        if cursor is not None and cursor.partition_index < 0:
            return {
                "topics": [
                    {"name": name, "error_code": ErrorCode.invalid_request} for name in wanted
                ]
            }
        first_name = "" if cursor is None else cursor.topic_name
        need = (
            needs.DESCRIBE_TOPIC_PARTITIONS_TOPIC if wanted else needs.DESCRIBE_TOPIC_PARTITIONS_ALL
        )
        names: list[str] = []
        refused: list[messages.DescribeTopicPartitionsResponseTopicsDict] = []
        for name in wanted or self._view.topic_names():
            if name < first_name:
                continue
            if context.may(need, name):
                names.append(name)
            elif wanted:
                refused.append({"name": name, "error_code": need.code})
        limit = min(self._config.max_request_partition_size_limit, request.response_partition_limit)
        left = max(limit, 1)
        topics: list[messages.DescribeTopicPartitionsResponseTopicsDict] = []
        for name in names:
            if left == 0:
                return {"topics": topics + refused, "next_cursor": _cursor(name, 0)}
            first = cursor.partition_index if cursor is not None and name == first_name else 0
            topic = self._view.topic(name)
            if topic is None:
                if wanted:
                    topics.append(
                        {
                            "name": name,
                            "error_code": why_unknown(name),
                            "is_internal": name in INTERNAL_TOPICS,
                            "topic_authorized_operations": context.session.access.operations(
                                AclResource.TOPIC, name
                            ),
                        }
                    )
                continue
            end = min(first + left, topic.partition_count)
            topics.append(self._topic_part(context, topic, range(first, end)))
            if end < topic.partition_count:
                return {"topics": topics + refused, "next_cursor": _cursor(name, end)}
            left -= max(end - first, 0)
        return {"topics": topics + refused}

    def _topic_part(
        self, context: RequestContext, topic: TopicView, numbers: range
    ) -> messages.DescribeTopicPartitionsResponseTopicsDict:
        return {
            "error_code": ErrorCode.none,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            # Also if not asked, as in Kafka.
            "topic_authorized_operations": context.session.access.operations(
                AclResource.TOPIC, topic.name
            ),
            "partitions": [
                {
                    "error_code": partition.error,
                    "partition_index": partition.number,
                    "leader_id": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "replica_nodes": partition.replicas,
                    "isr_nodes": partition.in_sync,
                    "eligible_leader_replicas": partition.eligible,
                    "last_known_elr": partition.last_known,
                    "offline_replicas": partition.offline,
                }
                for partition in self._view.partitions(topic, numbers)
            ],
        }


def _cursor(name: str, partition: int) -> messages.DescribeTopicPartitionsResponseNextCursorDict:
    return {"topic_name": name, "partition_index": partition}
