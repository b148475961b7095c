"""Puts a member of a cluster together from the parts of its broker."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from cordwood.broker.cluster.cluster_joining import ClusterJoining, ControllerAccess
from cordwood.broker.cluster.cluster_member import ClusterMember
from cordwood.broker.cluster.cluster_security import ClusterSecurity, refuse_local_security
from cordwood.broker.cluster.cluster_services import ClusterServices, TopicOrders
from cordwood.broker.cluster.cluster_transactions import ClusterTransactions
from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.config.peer_security import PeerSecurity
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.dynamic_configs import DynamicConfigs
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound.outbound_target import Target
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.broker.security.peer_tls import PeerTls, peer_tls
from cordwood.clock import Clock
from cordwood.errors import CordwoodError
from cordwood.log.store.store import Store
from cordwood.security.security_file import SecurityFile
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSurroundings:
    """The parts of a broker that a member works with.

    `when_failed` is called, in the control loop, if it cannot be a member any more. `access` and
    `tls` are for a member of a cluster, `security_file` for one of several processes.
    """

    store: Store
    broker: BrokerConfig
    security: SecurityConfig
    listeners: Sequence[ClientListener]
    control_loop: EventLoop
    data_loop: EventLoop
    watch: LogWatch
    syncs: DiskSyncs
    table: PartitionTable
    workers: Executor
    clock: Clock
    when_failed: Callable[[CordwoodError], None]
    dynamic: DynamicConfigs
    access: ClusterSecurity | None = None
    tls: "MemberTls | None" = None
    security_file: SecurityFile | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTls:
    """The TLS of connections to brokers and controllers; None where they have none."""

    brokers: PeerTls | None
    controllers: PeerTls | None

    @classmethod
    def of_config(cls, peers: PeerSecurity) -> "MemberTls":
        """Reads the files. Raises `ConfigError`."""
        return cls(
            brokers=peer_tls("connections to brokers", peers.brokers),
            controllers=peer_tls("connections to controllers", peers.controllers),
        )

    def watched(self) -> list[PeerTls]:
        return [each for each in (self.brokers, self.controllers) if each is not None]


def member_access(store: Store, security: SecurityConfig) -> ClusterSecurity:
    """Users, rules and quotas of the cluster. Raises `ConfigError` if the store has its own."""
    refuse_local_security(store.open_security(), store.path)
    return ClusterSecurity(has_authorizer=security.access.has_authorizer)


def assemble_member(
    config: ClusterConfig, around: MemberSurroundings
) -> tuple[ClusterJoining, ClusterMember, ClusterServices]:
    """Everything of a member. Nothing runs before `ClusterJoining.start`."""
    peers = around.security.peers
    assert peers is not None, "a member knows how to connect to others"
    access, tls = around.access, around.tls
    assert access is not None
    assert tls is not None
    joining = ClusterJoining(
        store=around.store,
        broker=around.broker,
        cluster=config,
        security=around.security,
        access=access,
        controllers=ControllerAccess(peers.controllers, tls.controllers),
        loop=around.control_loop,
        listeners=around.listeners,
        when_failed=around.when_failed,
    )
    orders = TopicOrders(joining.control, around.control_loop, around.broker, config)
    member = ClusterMember(
        store=around.store,
        config=config,
        node_id=around.broker.node_id,
        listener=peers.listener,
        control=joining.control,
        target_of=lambda at: Target(at.host, at.port, peers.brokers, tls.brokers),
        want_topic=orders.want,
        when_disk_failed=joining.disk_failed,
        assign_directory=joining.control.assign_directory,
        control_loop=around.control_loop,
        data_loop=around.data_loop,
        watch=around.watch,
        syncs=around.syncs,
        follow_settings=around.dynamic.follow,
        note_unsynced=joining.note_unsynced,
    )
    member.limit_replication(around.dynamic.broker)
    around.dynamic.when_changed(member.limit_replication)
    services = ClusterServices(
        member=member, control=joining.control, orders=orders, loop=around.control_loop
    )
    services.transactions = ClusterTransactions(
        member,
        lambda: joining.control.image,
        offsets=around.store.committed_offsets,
        table=around.table,
        control_loop=around.control_loop,
        data_loop=around.data_loop,
        request_sync=around.syncs.request,
        workers=around.workers,
        allocate=services.producer_ids.allocate,
        clock=around.clock,
    )
    return joining, member, services
