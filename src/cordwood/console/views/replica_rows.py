"""The brokers and replicas of a cluster as tables, and what is wrong in one sentence. Pure."""

from collections import Counter
from typing import Final

from cordwood.console.facts.replica_facts import ClusterPicture, ReplicaFacts
from cordwood.console.views.words import counted
from cordwood.value_class import dataclass

ALIVE: Final = "alive"
FENCED: Final = "fenced"
GONE: Final = "gone"

NO_LEADER: Final = "no leader"
UNDER_REPLICATED: Final = "under-replicated"
OTHER_LEADER: Final = "other leader"
IN_SYNC: Final = "in sync"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeRow:
    """A broker. `state` is alive, fenced, or gone: it has replicas, but no broker has its id."""

    node_id: int
    address: str
    rack: str | None
    state: str
    is_controller: bool
    leader_count: int
    replica_count: int
    out_of_sync_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRow:
    """The replicas of a partition, in the order of preference as leader."""

    topic: str
    partition: int
    leader: int | None
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    out_of_sync: tuple[int, ...]
    state: str


def node_rows(picture: ClusterPicture) -> tuple[NodeRow, ...]:
    leads: Counter[int] = Counter()
    holds: Counter[int] = Counter()
    lacks: Counter[int] = Counter()
    for partition in picture.partitions:
        if partition.has_leader:
            leads[partition.leader] += 1
        holds.update(partition.replicas)
        lacks.update(partition.out_of_sync)
    nodes = {node.node_id: node for node in picture.nodes}
    rows = []
    for node_id in sorted(nodes.keys() | holds.keys()):
        node = nodes.get(node_id)
        rows.append(
            NodeRow(
                node_id=node_id,
                address="" if node is None else node.address,
                rack=None if node is None else node.rack,
                state=GONE if node is None else FENCED if node.is_fenced else ALIVE,
                is_controller=node_id == picture.controller,
                leader_count=leads[node_id],
                replica_count=holds[node_id],
                out_of_sync_count=lacks[node_id],
            )
        )
    return tuple(rows)


def replica_rows(picture: ClusterPicture, *, only_problems: bool) -> list[ReplicaRow]:
    rows = [_replica_row(partition) for partition in picture.partitions]
    return [row for row in rows if row.state != IN_SYNC] if only_problems else rows


def _replica_row(partition: ReplicaFacts) -> ReplicaRow:
    if not partition.has_leader:
        state = NO_LEADER
    elif partition.is_under_replicated:
        state = UNDER_REPLICATED
    else:
        state = IN_SYNC if partition.has_preferred_leader else OTHER_LEADER
    return ReplicaRow(
        topic=partition.topic,
        partition=partition.partition,
        leader=partition.leader if partition.has_leader else None,
        replicas=partition.replicas,
        in_sync=partition.in_sync,
        out_of_sync=partition.out_of_sync,
        state=state,
    )


def replica_findings(picture: ClusterPicture) -> tuple[list[str], list[str]]:
    """What is bad: records cannot be read or written; and what may become so."""
    bad: list[str] = []
    warnings: list[str] = []
    if picture.without_leader:
        bad.append(f"{counted(picture.without_leader, 'partition')} without a leader.")
    if picture.under_replicated:
        warnings.append(
            f"{counted(picture.under_replicated, 'partition')} under-replicated: copies lag, or "
            "their brokers are down."
        )
    gone = [row.node_id for row in node_rows(picture) if row.state != ALIVE]
    if gone:
        named = ", ".join(map(str, gone[:5])) + (" …" if len(gone) > 5 else "")
        warnings.append(f"{counted(len(gone), 'broker')} down or fenced: {named}.")
    return bad, warnings
