"""Metadata of the cluster: its brokers, its topics and their leaders. Touches no disk.

Only the automatic creation of topics is left to the workers, or to the controllers of a cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final
from uuid import UUID

from cordwood.broker.cluster_view import ClusterView, TopicView
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.error_codes import ErrorCode, RefusedError, error_code
from cordwood.broker.net.requests.request import (
    Deferred,
    RequestContext,
    Response,
    Route,
    RunsOn,
    routes_on,
)
from cordwood.broker.records.topic_names import is_valid_name, why_unknown
from cordwood.broker.security import access_table as needs
from cordwood.errors import TopicExistsError
from cordwood.format.file_names import INTERNAL_TOPICS
from cordwood.log.store.store import Store
from cordwood.protocol.acl_codes import CLUSTER_NAME, NOT_ASKED, AclResource
from cordwood.protocol.api_catalog import ApiKey

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages

logger = logging.getLogger(__name__)

_NIL: Final = UUID(int=0)
_FIRST_WITH_NULL_TOPICS: Final = 1  # in version 0 an empty list meant all topics
_FIRST_BY_TOPIC_ID: Final = 12
# One request creates at most this many topics. The client asks again for the others.
_CREATED_MAX: Final = 100

_Item = tuple[str | None, UUID]  # the name and the id of a topic in a request

# Has topics created for a client, soon. Called in any thread.
OrderTopics = Callable[[RequestContext, Sequence[str]], None]

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


class MetadataHandler:
    """Describes topics and the cluster. Called in the control loop."""

    def __init__(
        self,
        *,
        store: Store,
        view: ClusterView,
        config: BrokerConfig,
        workers: Executor,
        order_topics: OrderTopics | None = None,
    ) -> None:
        """`order_topics` has the controllers create topics; None: this broker creates them."""
        self._store = store
        self._view = view
        self._config = config
        self._workers = workers
        self._order_topics = order_topics

    def routes(self) -> list[Route]:
        return routes_on(
            RunsOn.ANYWHERE,
            {
                ApiKey.METADATA: self.metadata,
                ApiKey.DESCRIBE_CLUSTER: self.describe_cluster,
                ApiKey.LIST_PARTITION_REASSIGNMENTS: self.list_partition_reassignments,
            },
        )

    # --- Metadata ----------------------------------------------------------------------------

    def metadata(
        self, context: RequestContext, request: messages.MetadataRequest
    ) -> Response | Deferred:
        version = context.api_version
        wanted = request.topics
        answer = partial(self._answer, context, request)
        if wanted is None or (not wanted and version < _FIRST_WITH_NULL_TOPICS):
            names = [
                name for name in self._view.topic_names() if context.may(needs.METADATA_ALL, name)
            ]
            return answer([self._by_name(name) for name in names])
        if version < _FIRST_BY_TOPIC_ID and any(
            item.name is None or item.topic_id != _NIL for item in wanted
        ):
            return answer(_refused_ids(wanted))
        items: list[_Item] = list(dict.fromkeys((item.name, item.topic_id) for item in wanted))
        allowed, refused = self._sorted_by_access(context, items)
        missing = self._to_create(allowed) if request.allow_auto_topic_creation else []
        forbidden = _not_creatable(context, missing)
        if forbidden:
            allowed = [item for item in allowed if item[0] not in forbidden]
            missing = [name for name in missing if name not in forbidden]
            refused += [_refused_topic(name) for name in forbidden]
        answer = partial(self._answer, context, request, refused=refused)
        if missing and self._order_topics is not None:
            self._order_topics(context, missing[:_CREATED_MAX])
            missing = []  # the client asks again
        if not missing:
            return answer(self._describe(allowed, {}))
        deferred = Deferred()
        self._workers.submit(self._create_and_answer, context, deferred, answer, allowed, missing)
        return deferred

    def _sorted_by_access(
        self, context: RequestContext, items: list[_Item]
    ) -> tuple[list[_Item], list[messages.MetadataResponseTopicsDict]]:
        """The topics that the client may describe, and the answers about all others.

        Whether a topic exists is not looked up before it is known that the client may know it.
        """
        allowed: list[_Item] = []
        refused: list[messages.MetadataResponseTopicsDict] = []
        for name, topic_id in items:
            topic = None if topic_id == _NIL else self._view.topic(topic_id)
            known = name if topic is None else topic.name
            if known is None or (topic is None and topic_id != _NIL):
                allowed.append((name, topic_id))  # no topic has the id, which is no secret
            elif context.may(needs.METADATA_TOPIC, known):
                allowed.append((name, topic_id))
            elif topic is None:
                refused.append(_refused_topic(known))
            else:
                refused.append({**_refused_topic(None), "topic_id": topic_id})
        return allowed, refused

    def _to_create(self, items: list[_Item]) -> list[str]:
        if not self._config.auto_create_topics_enable:
            return []
        return [
            name
            for name, topic_id in items
            if topic_id == _NIL
            and name is not None
            and name not in INTERNAL_TOPICS
            and self._view.topic(name) is None
            and is_valid_name(name)
        ]

    def _create_and_answer(
        self,
        context: RequestContext,
        deferred: Deferred,
        answer: Callable[[list[messages.MetadataResponseTopicsDict]], Response],
        items: list[_Item],
        missing: list[str],
    ) -> None:
        """In a worker. Topics that cannot be created are answered with the reason.

        A client whose quota is used up asks again, as for a topic that has no leader yet.
        """
        errors: dict[str, ErrorCode] = dict.fromkeys(
            missing[_CREATED_MAX:], ErrorCode.leader_not_available
        )
        room = max(self._config.auto_create_topics_max - len(self._store.topics()), 0)
        if len(missing) > room:
            logger.warning(
                "not creating %d topics that clients asked for: there are %d already, and "
                "auto.create.topics.max is %d",
                len(missing) - room,
                len(self._store.topics()),
                self._config.auto_create_topics_max,
            )
        errors |= dict.fromkeys(missing[room:], ErrorCode.unknown_topic_or_partition)
        partitions = self._config.num_partitions
        mutations = context.mutations(is_strict=True)
        try:
            for name in missing[: min(room, _CREATED_MAX)]:
                try:
                    mutations.count(partitions)
                    self._store.create_topic(name, partitions=partitions)
                except TopicExistsError:
                    continue  # another client created it at the same time
                except RefusedError as error:
                    logger.info("not creating topic %s for a client now: %s", name, error)
                    errors[name] = ErrorCode.leader_not_available
                except Exception as error:
                    logger.warning("cannot create topic %s for a client: %s", name, error)
                    errors[name] = error_code(error)
                else:
                    logger.info("created topic %s on request of a client", name)
                    context.changed("CREATE", "TOPIC", name, new={"partitions": partitions})
            deferred.resolve(answer(self._describe(items, errors)))
        except BaseException as error:
            deferred.fail(error)

    def _describe(
        self, items: list[_Item], errors: dict[str, ErrorCode]
    ) -> list[messages.MetadataResponseTopicsDict]:
        topics: list[messages.MetadataResponseTopicsDict] = []
        for name, topic_id in items:
            if topic_id != _NIL:
                topics.append(self._by_id(topic_id))
            elif name is None:
                topics.append({"name": "", "error_code": ErrorCode.invalid_topic_exception})
            else:
                topics.append(self._by_name(name, errors.get(name)))
        return topics

    def _by_name(
        self, name: str, error: ErrorCode | None = None
    ) -> messages.MetadataResponseTopicsDict:
        topic = self._view.topic(name)
        if topic is not None:
            return self._topic(topic)
        return {
            "name": name,
            "error_code": why_unknown(name) if error is None else error,
            "is_internal": name in INTERNAL_TOPICS,
        }

    def _by_id(self, topic_id: UUID) -> messages.MetadataResponseTopicsDict:
        topic = self._view.topic(topic_id)
        if topic is not None:
            return self._topic(topic)
        return {"name": None, "topic_id": topic_id, "error_code": ErrorCode.unknown_topic_id}

    def _topic(self, topic: TopicView) -> messages.MetadataResponseTopicsDict:
        return {
            "error_code": ErrorCode.none,
            "name": topic.name,
            "topic_id": topic.topic_id,
            "is_internal": topic.name in INTERNAL_TOPICS,
            "partitions": [
                {
                    "error_code": partition.error,
                    "partition_index": partition.number,
                    "leader_id": partition.leader,
                    "leader_epoch": partition.leader_epoch,
                    "replica_nodes": partition.replicas,
                    "isr_nodes": partition.in_sync,
                    "offline_replicas": partition.offline,
                }
                for partition in self._view.partitions(topic, range(topic.partition_count))
            ],
        }

    def _answer(
        self,
        context: RequestContext,
        request: messages.MetadataRequest,
        topics: Sequence[messages.MetadataResponseTopicsDict],
        refused: Sequence[messages.MetadataResponseTopicsDict] = (),
    ) -> messages.MetadataResponseDict:
        here, access = context.session.listener, context.session.access
        if request.include_topic_authorized_operations:
            for topic in topics:
                name = topic["name"]
                if name is not None:
                    topic["topic_authorized_operations"] = access.operations(
                        AclResource.TOPIC, name
                    )
        return {
            "brokers": [
                {"node_id": node_id, "host": host, "port": port, "rack": rack}
                for node_id, host, port, rack in self._view.brokers(here)
            ],
            "cluster_id": self._view.cluster_id,
            "controller_id": self._view.controller_id,
            "cluster_authorized_operations": _cluster_operations(context, needs.METADATA_CLUSTER)
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
            "topics": [*topics, *refused],
            "error_code": ErrorCode.none,
        }

    # --- DescribeCluster ---------------------------------------------------------------------

    def describe_cluster(
        self, context: RequestContext, request: messages.DescribeClusterRequest
    ) -> messages.DescribeClusterResponseDict:
        here = context.session.listener
        if request.endpoint_type != _BROKERS:
            is_known = request.endpoint_type == _CONTROLLERS
            return {
                "error_code": ErrorCode.mismatched_endpoint_type
                if is_known
                else ErrorCode.unsupported_endpoint_type,
                "error_message": "this is a broker: ask for endpoints of type 1",
                "endpoint_type": request.endpoint_type,
            }
        return {
            "error_code": ErrorCode.none,
            "endpoint_type": _BROKERS,
            "cluster_id": self._view.cluster_id,
            "controller_id": self._view.controller_id,
            "cluster_authorized_operations": _cluster_operations(
                context, needs.DESCRIBE_CLUSTER_OPERATIONS
            )
            if request.include_cluster_authorized_operations
            else NOT_ASKED,
            "brokers": [
                {
                    "broker_id": address.node_id,
                    "host": address.host,
                    "port": address.port,
                    "rack": address.rack,
                    "is_fenced": is_fenced,
                }
                for address, is_fenced in self._view.registered(here)
                if request.include_fenced_brokers or not is_fenced
            ],
        }

    # --- ListPartitionReassignments ----------------------------------------------------------

    def list_partition_reassignments(
        self, context: RequestContext, request: messages.ListPartitionReassignmentsRequest
    ) -> messages.ListPartitionReassignmentsResponseDict:
        """Always empty: there is one broker."""
        if not context.may(needs.LIST_PARTITION_REASSIGNMENTS):
            return {"error_code": needs.LIST_PARTITION_REASSIGNMENTS.code, "topics": []}
        return {"error_code": ErrorCode.none, "topics": []}


def _not_creatable(context: RequestContext, names: list[str]) -> dict[str, None]:
    """The missing topics that the client may describe, but not create."""
    if not names or context.may(needs.METADATA_CREATE_CLUSTER):
        return {}
    return {name: None for name in names if not context.may(needs.METADATA_CREATE, name)}


def _cluster_operations(context: RequestContext, need: needs.Need) -> int:
    if not context.may(need):
        return 0
    return context.session.access.operations(AclResource.CLUSTER, CLUSTER_NAME)


def _refused_topic(name: str | None) -> messages.MetadataResponseTopicsDict:
    return {
        "name": name,
        "error_code": needs.METADATA_TOPIC.code,
        "is_internal": False,
        "partitions": [],
    }


def _refused_ids(
    wanted: Sequence[messages.MetadataRequestTopics],
) -> list[messages.MetadataResponseTopicsDict]:
    """Requests have ids from version 10 on, but may use them only from version 12 on."""
    return [
        {
            "name": item.name or "",
            "topic_id": item.topic_id,
            "error_code": ErrorCode.invalid_request,
        }
        for item in wanted
    ]
