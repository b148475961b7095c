"""Puts a member of a cluster together from the parts of its broker."""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from cordwood.broker.cluster.broker_peers import plaintext_target
from cordwood.broker.cluster.cluster_joining import ClusterJoining, check_security
from cordwood.broker.cluster.cluster_member import ClusterMember
from cordwood.broker.cluster.cluster_services import ClusterServices, TopicOrders
from cordwood.broker.cluster.cluster_transactions import ClusterTransactions
from cordwood.broker.cluster_identity import ClientListener
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.cluster_config import ClusterConfig
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.net.event_loop import EventLoop
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.clock import Clock
from cordwood.errors import CordwoodError
from cordwood.log.store.store import Store
from cordwood.security.security_file import SecurityFile
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberSurroundings:
    """The parts of a broker that a member works with.

    `when_failed` is called, in the control loop, if it cannot be a member any more. A member that
    accepts clients only when it has joined calls `when_joined` then, once, in the control loop.
    """

    store: Store
    broker: BrokerConfig
    security: SecurityConfig
    security_file: SecurityFile
    listeners: Sequence[ClientListener]
    control_loop: EventLoop
    data_loop: EventLoop
    watch: LogWatch
    syncs: DiskSyncs
    table: PartitionTable
    workers: Executor
    clock: Clock
    when_failed: Callable[[CordwoodError], None]
    when_joined: Callable[[], None] = lambda: None


def assemble_member(
    config: ClusterConfig, around: MemberSurroundings
) -> tuple[ClusterJoining, ClusterMember, ClusterServices]:
    """Everything of a member. Nothing runs before `ClusterJoining.start`."""
    listener = check_security(config, around.security)
    joining = ClusterJoining(
        store=around.store,
        broker=around.broker,
        cluster=config,
        security=around.security,
        loop=around.control_loop,
        listeners=around.listeners,
        when_failed=around.when_failed,
    )
    orders = TopicOrders(joining.control, around.control_loop, around.broker, config)
    member = ClusterMember(
        store=around.store,
        config=config,
        node_id=around.broker.node_id,
        listener=listener.name,
        control=joining.control,
        target_of=plaintext_target,
        want_topic=orders.want,
        when_disk_failed=joining.disk_failed,
        control_loop=around.control_loop,
        data_loop=around.data_loop,
        watch=around.watch,
        syncs=around.syncs,
    )
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
