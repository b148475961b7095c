"""What metrics and health checks look at: a running broker, seen from outside its threads."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.net.request_metrics import RequestMetrics
from cordwood.log.store.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupFacts:
    """One group as of one moment. `committed` maps (topic, partition) to the next offset."""

    group: str
    kind: str  # classic, consumer
    state: str
    member_count: int
    committed: Mapping[tuple[str, int], int]


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedBroker:
    """A broker for those who watch it. The functions may be called from any thread.

    is_responsive          whether the loops that serve clients turn, within so many seconds
    groups                 every group there is; the answer is a copy
    connection_count       how many clients are connected now
    is_coordinator_loaded  whether groups and their offsets have been read from the log
    """

    store: Store
    config: BrokerConfig
    address: tuple[str, int]  # that clients are told
    requests: RequestMetrics
    is_responsive: Callable[[float], bool]
    groups: Callable[[], Sequence[GroupFacts]]
    connection_count: Callable[[], int]
    is_coordinator_loaded: Callable[[], bool]


def groups_of(store: Store) -> list[GroupFacts]:
    """What the store alone knows of groups: their offsets. For a store without a coordinator."""
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
