"""What a member of a cluster serves in another way than a broker that is alone."""

import logging
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.broker.cluster.cluster_audit_topic import ClusterWays
from cordwood.broker.cluster.cluster_member import ClusterMember
from cordwood.broker.cluster.cluster_transactions import ClusterTransactions
from cordwood.broker.cluster.control.control_relay import ControllerRelay
from cordwood.broker.cluster.control.control_requests import ControlRequest
from cordwood.broker.cluster.control.deciding_control import DecidingControl
from cordwood.broker.cluster.replica_directories import ReplicaDirectories
from cordwood.broker.cluster.replicas.topic_settings import topic_settings
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.error_codes import RefusedError
from cordwood.broker.groups.journal.group_shards import GroupShards
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.requests.request import RequestContext, Route
from cordwood.broker.security.audit_topic import AUDIT_PURPOSE
from cordwood.errors import CordwoodError, UnknownTopicError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.format.groups.group_offsets import group_partition
from cordwood.log.topics.offsets_topic import OFFSETS_CONFIG
from cordwood.log.transactions.transaction_topic import TRANSACTIONS_CONFIG
from cordwood.protocol.api_catalog import KNOWN_APIS, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.messages import encode_request
from cordwood.quantities import ProducerId

logger = logging.getLogger(__name__)

_CREATE_VERSION_MIN: Final = 5
_ORDER_TIMEOUT_S: Final = 10.0
_ALLOCATION_S: Final = 3.0  # controllers answer within milliseconds
_ALLOCATION_IDS_MIN: Final = 100  # a block of Kafka's controllers has 1000
_COORDINATOR_PARTITIONS: Final = 50


class TopicOrders:
    """Has the controllers create topics that clients ask for. Belongs to the control loop.

    A topic that is on order is not ordered again before there is an answer.
    """

    def __init__(
        self,
        control: DecidingControl,
        loop: EventLoop,
        broker: BrokerConfig,
        cluster: ClusterConfig,
    ) -> None:
        self._control = control
        self._loop = loop
        self._broker = broker
        self._cluster = cluster
        self._on_order: set[str] = set()

    def want(self, name: str) -> None:
        """Have an internal topic created. Any thread may call it, often."""
        self._loop.call_soon(lambda: self._order([self._internal(name)]))

    def want_all(self, _context: RequestContext, names: Sequence[str]) -> None:
        """Have topics created that a client asked for. Any thread may call it."""
        self.order(names)

    def order(self, names: Sequence[str]) -> None:
        """Have topics created, with the defaults of this broker. Any thread may call it."""
        topics = [
            {
                "name": name,
                "num_partitions": self._broker.num_partitions,
                "replication_factor": self._cluster.default_replication_factor,
                "assignments": [],
                "configs": [],
            }
            for name in names
        ]
        self._loop.call_soon(lambda: self._order(topics))

    def _internal(self, name: str) -> dict[str, object]:
        cluster, broker, defaults = self._cluster, self._broker, BrokerConfig()
        if name == CONSUMER_OFFSETS_TOPIC:
            partitions = broker.offsets_topic_num_partitions
            is_default = partitions == defaults.offsets_topic_num_partitions
            replicas, configs = cluster.offsets_topic_replication_factor, OFFSETS_CONFIG
        else:
            assert name == TRANSACTION_STATE_TOPIC, name
            partitions = broker.transaction_state_log_num_partitions
            is_default = partitions == defaults.transaction_state_log_num_partitions
            replicas = cluster.transaction_state_log_replication_factor
            configs = {
                **TRANSACTIONS_CONFIG,
                "segment.bytes": str(broker.transaction_state_log_segment_bytes),
                "min.insync.replicas": str(cluster.transaction_state_log_min_isr),
                "unclean.leader.election.enable": "false",
            }
        return {
            "name": name,
            # As configured; Kafka's default unless it is: then many brokers coordinate.
            "num_partitions": _COORDINATOR_PARTITIONS if is_default else partitions,
            "replication_factor": replicas,
            "assignments": [],
            "configs": [{"name": key, "value": value} for key, value in configs.items()],
        }

    def _order(self, topics: Sequence[Mapping[str, object]]) -> None:
        new = [topic for topic in topics if str(topic["name"]) not in self._on_order]
        if not new:
            return
        names = {str(topic["name"]) for topic in new}
        self._on_order |= names
        request = {"topics": new, "timeout": int(_ORDER_TIMEOUT_S * 1000), "validate_only": False}

        def done(answer: Fields | CordwoodError, _version: int) -> None:
            self._on_order -= names
            if isinstance(answer, CordwoodError):
                logger.warning("topics %s were not created: %s", ", ".join(names), answer)
                return
            for topic in answer.topics:
                if topic.error_code not in (ErrorCode.none, ErrorCode.topic_already_exists):
                    reason = topic.error_message or ErrorCode(topic.error_code).name
                    logger.warning("topic %s was not created: %s", topic.name, reason)

        self._control.relay.send(
            ControlRequest(
                api=ApiKey.CREATE_TOPICS,
                version_min=_CREATE_VERSION_MIN,
                version_max=KNOWN_APIS[ApiKey.CREATE_TOPICS].max_version,
                encode=lambda version: encode_request(ApiKey.CREATE_TOPICS, version, request),
                when_done=done,
                timeout_s=_ORDER_TIMEOUT_S,
            )
        )


class ClusterProducerIds:
    """Producer ids in blocks of the controllers. For threads that may wait for a moment.

    The next block is asked for while the last one still has ids. If there is none although a
    request waited for it, clients are told to try again: a thread that waited for as long as the
    controllers are silent would be missing elsewhere.
    """

    def __init__(
        self, control: DecidingControl, loop: EventLoop, *, wait_s: float = _ALLOCATION_S
    ) -> None:
        self._control = control
        self._loop = loop
        self._wait_s = wait_s
        self._changed = threading.Condition()
        self._blocks: deque[range] = deque()
        self._is_asked = False

    def allocate(self) -> ProducerId:
        """An id that no producer of the cluster has. Raises `RefusedError`."""
        with self._changed:
            self._ask_in_time()
            if not self._changed.wait_for(lambda: self._blocks, self._wait_s):
                raise RefusedError(
                    ErrorCode.coordinator_load_in_progress,
                    "the controllers have not given producer ids yet",
                )
            block = self._blocks.popleft()
            if len(block) > 1:
                self._blocks.appendleft(block[1:])
            self._ask_in_time()
            return ProducerId(block[0])

    def _ask_in_time(self) -> None:
        """The caller holds the lock."""
        if not self._is_asked and sum(map(len, self._blocks)) < _ALLOCATION_IDS_MIN:
            self._is_asked = True
            self._loop.call_soon(lambda: self._control.allocate_producer_ids(self._answered))

    def _answered(self, answer: object) -> None:
        """In the control loop."""
        with self._changed:
            self._is_asked = False
            if isinstance(answer, Fields) and not answer.error_code and answer.producer_id_len > 0:
                start = answer.producer_id_start
                self._blocks.append(range(start, start + answer.producer_id_len))
                self._changed.notify_all()
                return
        reason = f"error {answer.error_code}" if isinstance(answer, Fields) else answer
        logger.warning("the controllers gave no producer ids: %s", reason)


class ClusterTopicConfigs:
    """The settings of topics, as the controllers keep them. Any thread may ask."""

    def __init__(self, member: ClusterMember, control: DecidingControl) -> None:
        self._member = member
        self._control = control

    def topic_names(self) -> list[str]:
        return self._member.view.topic_names()

    def of_topic(self, name: str) -> Mapping[str, str]:
        image = self._control.image
        if image.topic(name) is None:
            raise UnknownTopicError(name)
        return topic_settings(image, name)


class ClusterServices:
    """The parts of a member that the handlers use. `transactions` is set when it is assembled."""

    transactions: ClusterTransactions

    def __init__(
        self,
        *,
        member: ClusterMember,
        control: DecidingControl,
        orders: TopicOrders,
        loop: EventLoop,
        relayed: frozenset[ApiKey] | None = None,
    ) -> None:
        """`relayed` are the APIs that the control serves; None: all that controllers do."""
        self.member = member
        self.order_topics = orders.want_all
        self._order = orders.order
        self.producer_ids = ClusterProducerIds(control, loop)
        self.configs = ClusterTopicConfigs(member, control)
        self.shards = GroupShards(
            lambda: member.partition_count(CONSUMER_OFFSETS_TOPIC), member.groups
        )
        self._want_topic = orders.want
        self._control = control
        self._relayed = ControllerRelay(loop, control).routes(relayed)
        if relayed is None:
            self._relayed += ReplicaDirectories(member).routes()
        self.apis = [KNOWN_APIS[route.api] for route in self._relayed]

    def audit_ways(self, loop: EventLoop) -> ClusterWays:
        """How audit lines reach the leaders of their topic."""
        return ClusterWays(
            loop=loop,
            peers=self.member.peers_in(loop, AUDIT_PURPOSE),
            image=lambda: self._control.image,
            order=self._order,
        )

    def routed(self, routes: Sequence[Route]) -> list[Route]:
        """`routes`, of which some are served by the controllers instead."""
        relayed = {route.api for route in self._relayed}
        return [*(route for route in routes if route.api not in relayed), *self._relayed]

    def offsets_place(self, group_id: str) -> tuple[str, int]:
        """The partition that has the offsets of a group. Raises while their topic is created."""
        count = self.member.partition_count(CONSUMER_OFFSETS_TOPIC)
        if count is None:
            self._want_topic(CONSUMER_OFFSETS_TOPIC)
            raise RefusedError(
                ErrorCode.coordinator_not_available, f"{CONSUMER_OFFSETS_TOPIC} is being created"
            )
        return CONSUMER_OFFSETS_TOPIC, group_partition(group_id, count)

    def features(self) -> tuple[int, Mapping[str, int]]:
        """The features that the cluster has finalised, and since which record."""
        image = self._control.image
        return image.end - 1, image.features
