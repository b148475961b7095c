"""All handlers but produce and fetch, and the groups behind them."""

import uuid
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial
from typing import TYPE_CHECKING, Final

from cordwood.broker.cluster_identity import ClusterIdentity
from cordwood.broker.cluster_view import ClusterView
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.security_entries import security_entries
from cordwood.broker.config_owners import ConfigOwners
from cordwood.broker.dynamic_configs import DynamicConfigs
from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.consumer.consumer_group import GroupSurroundings
from cordwood.broker.groups.consumer.consumer_group_config import ConsumerGroupConfig
from cordwood.broker.groups.consumer.consumer_group_factory import ConsumerGroupFactory
from cordwood.broker.groups.consumer.topic_subscriptions import ViewTopics
from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.groups.group_census import GroupCensus
from cordwood.broker.groups.inbox_changes import InboxGroupChanges
from cordwood.broker.groups.journal.group_loader import GroupLoader
from cordwood.broker.groups.journal.group_log import GroupLogWriter
from cordwood.broker.handlers.access_rules import AccessRulesHandler
from cordwood.broker.handlers.api_versions import ApiVersionsHandler
from cordwood.broker.handlers.client_quotas import ClientQuotasHandler
from cordwood.broker.handlers.consumer_groups import ConsumerGroupHandlers
from cordwood.broker.handlers.group_admin import GroupAdminHandler
from cordwood.broker.handlers.group_membership import GroupMembershipHandler
from cordwood.broker.handlers.group_offsets import GroupOffsetsHandler
from cordwood.broker.handlers.list_offsets import ListOffsetsHandler
from cordwood.broker.handlers.log_dirs import LogDirsHandler
from cordwood.broker.handlers.metadata import MetadataHandler
from cordwood.broker.handlers.offset_fetch import OffsetFetchHandler
from cordwood.broker.handlers.sasl import SaslHandler
from cordwood.broker.handlers.telemetry import TelemetryHandler
from cordwood.broker.handlers.topic_configs import TopicConfigsHandler
from cordwood.broker.handlers.topic_creation import TopicCreationHandler
from cordwood.broker.handlers.topic_deletion import TopicDeletionHandler
from cordwood.broker.handlers.topic_partitions import TopicPartitionsHandler
from cordwood.broker.handlers.transaction_admin import TransactionAdminHandler, write_alone
from cordwood.broker.handlers.transaction_offsets import SoleAdmission, TransactionOffsetsHandler
from cordwood.broker.handlers.transactions import TransactionsHandler
from cordwood.broker.handlers.users import UsersHandler
from cordwood.broker.net.loop.scheduler import Scheduler
from cordwood.broker.net.requests.request import Route
from cordwood.broker.records.early_answers import WhenVisible
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.security.broker_security import BrokerSecurity
from cordwood.broker.security.inbox_audit import InboxAudit
from cordwood.broker.security.security_events import SecurityEvents
from cordwood.broker.telemetry.client_metrics import ClientMetrics
from cordwood.clock import Clock
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC
from cordwood.format.groups.group_offsets import group_partition
from cordwood.log.store.store import Store
from cordwood.log.transactions.coordinator import TransactionCoordinator
from cordwood.log.transactions.transaction_config import TransactionConfig
from cordwood.protocol.api_catalog import ApiKey
from cordwood.security.security_source import SecuritySource

if TYPE_CHECKING:  # a broker that is alone does not load it
    from cordwood.broker.cluster.cluster_services import ClusterServices
    from cordwood.broker.cluster.transactions.transaction_shards import TransactionShards


# As in Kafka, clients are told of these only if somebody looks at what they send.
_TELEMETRY: Final = frozenset({ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY})


class Services:
    """Everything a broker serves besides records. Created before the loops turn."""

    def __init__(
        self,
        *,
        store: Store,
        security_file: SecuritySource,
        table: PartitionTable,
        dynamic: DynamicConfigs,
        identity: ClusterIdentity,
        view: ClusterView,
        scheduler: Scheduler,
        workers: Executor,
        clock: Clock,
        when_visible: WhenVisible,
        security: BrokerSecurity,
        events: SecurityEvents,
        cluster: "ClusterServices | None" = None,
        clients: ClientMetrics | None = None,
    ) -> None:
        """With `cluster` the broker is a member of one; else it is all of it.

        `clients` takes the metrics of clients; None: nobody looks at them.
        """
        self._cluster = cluster
        if clients is not None:
            dynamic.when_subscribed(clients.subscribe)
        config = dynamic.static.broker
        shards = None if cluster is None else cluster.shards
        if cluster is not None:
            store.offsets_topic.is_of_cluster = True
            store.committed_offsets.coordinate_partly(lambda name: _id_of(view, name))
        group_config = GroupConfig.of_broker(config)
        self.transactions: TransactionCoordinator | TransactionShards = store.transactions
        write_markers = write_alone(store.transactions.markers, table.log)
        offsets_place: Callable[[str], tuple[str, int]] = partial(
            _offsets_place, store, group_config.offsets_topic_partitions
        )
        allocate = store.producer_ids.allocate
        if cluster is not None:
            self.transactions = cluster.transactions.shards
            write_markers = cluster.transactions.write_markers
            offsets_place = cluster.offsets_place
            allocate = cluster.producer_ids.allocate
        self.transactions.config = _transaction_config(config)
        self._group_log = GroupLogWriter(
            store.committed_offsets,
            scheduler,
            lambda: store.offsets_topic.ensure(partitions=group_config.offsets_topic_partitions),
            shards,
            config.offsets_commit_timeout_ms / 1000,
        )
        consumer_groups = ConsumerGroupFactory(
            GroupSurroundings(
                config=ConsumerGroupConfig.of_broker(config),
                topics=ViewTopics(view),
                scheduler=scheduler,
                clock=clock,
                settings_of=dynamic.of_group,
            ),
            self._group_log,
        )
        self._coordinator = GroupCoordinator(
            offsets=store.committed_offsets,
            group_log=self._group_log,
            loader=GroupLoader(store.committed_offsets, consumer_groups.restore),
            scheduler=scheduler,
            clock=clock,
            config=group_config,
            workers=workers,
            shards=shards,
        )
        self.census = GroupCensus(self._coordinator)
        coordinator = self._coordinator
        self._changes = store.changes
        closed_topics = security.config.audit.closed_topics
        hidden = frozenset() if clients is not None else _TELEMETRY
        self._outside = InboxGroupChanges(coordinator, store.registry.id_of)
        self._audit = InboxAudit(store.registry, store.committed_offsets, events)
        self._handlers = (
            ApiVersionsHandler(hidden=hidden)
            if cluster is None
            else ApiVersionsHandler(cluster.apis, cluster.features, hidden=hidden),
            TelemetryHandler(clients),
            SaslHandler(),
            UsersHandler(security_file),
            MetadataHandler(
                store=store,
                view=view,
                config=config,
                workers=workers,
                order_topics=None if cluster is None else cluster.order_topics,
            ),
            TopicPartitionsHandler(view, config),
            TopicCreationHandler(
                store=store, identity=identity, dynamic=dynamic, closed_topics=closed_topics
            ),
            TopicDeletionHandler(
                store=store, table=table, config=config, closed_topics=closed_topics
            ),
            TopicConfigsHandler(
                ConfigOwners(
                    store,
                    identity,
                    dynamic,
                    security_entries(security.config),
                    closed_topics,
                    cluster=None if cluster is None else cluster.configs,
                )
            ),
            AccessRulesHandler(security.file, has_authorizer=security.has_authorizer),
            ListOffsetsHandler(table, when_visible),
            LogDirsHandler(store),
            TransactionsHandler(
                self.transactions,
                view,
                offsets_place=offsets_place,
                allocate=allocate,
                closed_topics=closed_topics,
            ),
            TransactionAdminHandler(self.transactions, table, clock, write_markers),
            TransactionOffsetsHandler(
                coordinator=coordinator,
                view=view,
                admission=SoleAdmission(
                    self.transactions,
                    partial(_expected_place, store, group_config.offsets_topic_partitions),
                )
                if cluster is None
                else cluster.transactions.admission,
            ),
            GroupMembershipHandler(coordinator=coordinator, view=view),
            GroupOffsetsHandler(coordinator=coordinator, view=view),
            OffsetFetchHandler(coordinator=coordinator, view=view),
            GroupAdminHandler(coordinator=coordinator),
            ClientQuotasHandler(security_file),
            ConsumerGroupHandlers(coordinator, consumer_groups, lambda: str(uuid.uuid4())),
        )

    def routes(self) -> list[Route]:
        routes = [route for handler in self._handlers for route in handler.routes()]
        return routes if self._cluster is None else self._cluster.routed(routes)

    def start(self) -> None:
        """Load the groups in the background. Members are told to retry until that is done."""
        self._group_log.start()
        self._coordinator.start()
        self._changes.coordinate_groups(self._outside)
        self._changes.watch(self._audit)
        if self._cluster is not None:
            shards = self._cluster.transactions.shards
            shards.start()
            self._cluster.member.start(self._coordinator, shards)

    def release_waiting(self) -> None:
        """The broker stops: answer members that wait for a rebalance. In the control loop."""
        self._coordinator.stop()

    def stop(self) -> None:
        """Write the group records that are still queued, then stop."""
        self._changes.coordinate_groups(None)
        self._changes.watch(None)
        if self._cluster is not None:
            self._cluster.transactions.stop()
        self._group_log.stop()


def _id_of(view: ClusterView, name: str) -> uuid.UUID | None:
    topic = view.topic(name)
    return None if topic is None else topic.topic_id


def _offsets_place(store: Store, partitions: int, group_id: str) -> tuple[str, int]:
    """The partition that has the offsets of a group. Creates their topic if need be."""
    topic = store.offsets_topic.ensure(partitions=partitions)
    return CONSUMER_OFFSETS_TOPIC, group_partition(group_id, topic.partition_count)


def _expected_place(store: Store, partitions: int, group_id: str) -> tuple[str, int]:
    """The same, without creating it: the commit does that."""
    topic = store.offsets_topic.find()
    count = partitions if topic is None else topic.partition_count
    return CONSUMER_OFFSETS_TOPIC, group_partition(group_id, count)


def _transaction_config(config: BrokerConfig) -> TransactionConfig:
    return TransactionConfig(
        max_timeout_ms=config.transaction_max_timeout_ms,
        id_expiration_ms=config.transactional_id_expiration_ms,
        abort_interval_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
        expiry_interval_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        verifies_partitions=config.transaction_partition_verification_enable,
        state_log_partitions=config.transaction_state_log_num_partitions,
        state_log_segment_bytes=config.transaction_state_log_segment_bytes,
    )
