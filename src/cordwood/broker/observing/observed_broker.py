"""A running broker as metrics and health checks see it, from outside its threads."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.net.requests.request_metrics import RequestMetrics
from cordwood.broker.security.audit_log import AuditCounts
from cordwood.broker.security.authentication_events import AuthenticationCounts
from cordwood.broker.security.client_quotas import QuotaCounts
from cordwood.broker.telemetry.client_metrics import ClientMetrics
from cordwood.log.store.store import Store
from cordwood.log.transactions.transaction_requests import CoordinatedTransactions
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:  # loaded with the first listener that has TLS
    from cordwood.broker.security.tls_listener import TlsListener


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group as of one moment. `committed` maps (topic, partition) to the next offset."""

    group: str
    kind: str  # classic, consumer
    state: str
    member_count: int
    committed: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedLimits:
    """What quotas and limits on connections do to clients. Any thread."""

    quotas: Callable[[], QuotaCounts]
    muted_connections: Callable[[], int]
    delayed_connections: Callable[[], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterFacts:
    """A member of a cluster as of one moment. See `cluster_metrics`.

    `fencing` says why it may not lead; None: it may.
    """

    partitions: int
    leaders: int
    under_replicated: int
    under_min_isr: int
    offline: int
    stopped: int
    fencing: str | None
    isr_shrinks: int
    isr_expands: int
    leader_replication_rate: float = 0.0
    follower_replication_rate: float = 0.0
    move_rate: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBroker:
    """A broker as seen by metrics and health checks. Any thread may call the functions.

    is_responsive          whether the loops that serve clients turn within so many seconds
    groups                 a copy of the facts about every group
    connection_count       how many clients are connected now
    insecure_listeners     those that other machines reach without authentication
    is_coordinator_loaded  whether groups and their offsets have been read from the log
    lost_fetch_count       how many fetches asked for lost records and got those behind them
    tls                    the listeners with TLS, by name
    hosts                  names that clients use for this broker
    clients                the metrics that clients send; None: they are not asked for them
    cluster                the replicas of a member of a cluster; None: the broker is alone
    transactions           those that are coordinated here; None: those of the store
    """

    store: Store
    config: BrokerConfig
    address: tuple[str, int]  # that clients connect to
    requests: RequestMetrics
    authentications: AuthenticationCounts = field(default_factory=AuthenticationCounts)
    is_responsive: Callable[[float], bool]
    groups: Callable[[], Sequence[GroupFacts]]
    connection_count: Callable[[], int]
    is_coordinator_loaded: Callable[[], bool]
    tls: "Mapping[str, TlsListener]" = field(default_factory=dict)
    hosts: frozenset[str] = frozenset()
    insecure_listeners: tuple[str, ...] = ()
    lost_fetch_count: Callable[[], int] = lambda: 0
    limits: ObservedLimits | None = None
    audit: Callable[[], AuditCounts] | None = None
    cluster: Callable[[], ClusterFacts] | None = None
    clients: ClientMetrics | None = None
    transactions: CoordinatedTransactions | None = None


def groups_of(store: Store) -> list[GroupFacts]:
    """The groups that a store without a coordinator knows, with their offsets only."""
    return [
        GroupFacts(
            group=name,
            kind="classic",
            state="Empty",
            member_count=0,
            committed=store.group(name).committed(),
        )
        for name in store.groups()
    ]
