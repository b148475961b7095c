"""Where replicas should be: plans that keep the replication factor and move little. Pure.

A plan for a set of partitions and the brokers that may have them:

    1  a replica on one of these brokers stays; the others are placed on the brokers with the
       fewest replicas, in racks that the partition is not in yet
    2  if a partition is in fewer racks than it could be, one replica moves
    3  while a broker has at least two replicas more than another, one moves, if racks allow it
    4  the preferred leaders are evened out by order alone, which copies nothing

Every step keeps these rules:

    * a partition keeps its number of replicas
    * no broker has two replicas of one partition
    * a partition is in min(replicas, racks) racks, if every broker has a rack
"""

from collections.abc import Iterable, Mapping, Sequence

from cordwood.cluster.operating.cluster_picture import (
    BrokerPicture,
    ClusterPicture,
    PartitionPicture,
    Place,
)
from cordwood.cluster.operating.replica_loads import ReplicaLoads
from cordwood.errors import ConfigError
from cordwood.value_class import dataclass

Assignment = dict[Place, tuple[int, ...]]


def plan_spread(
    partitions: Sequence[PartitionPicture], brokers: Iterable[BrokerPicture]
) -> Assignment:
    """Have the partitions on `brokers` and nowhere else, evenly. Raises `ConfigError`."""
    racks = {broker.node_id: broker.rack for broker in brokers}
    for partition in partitions:
        if len(partition.target) > len(racks):
            raise ConfigError(
                "--to",
                ",".join(map(str, racks)),
                f"are {len(racks)} brokers, but {partition.place} has {len(partition.target)} "
                "replicas",
            )
    original = {partition.place: partition.target for partition in partitions}
    loads = ReplicaLoads(
        {
            place: [node for node in replicas if node in racks]
            for place, replicas in original.items()
        },
        racks,
    )
    for place in sorted(original):
        _fill(loads, place, original[place])
    for place in sorted(original):
        _spread_racks(loads, place)
    _even_out(loads, original)
    _even_out_leaders(loads)
    return {place: tuple(replicas) for place, replicas in loads.assignment.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drain:
    """How a broker is emptied. `stuck` says of each partition that cannot leave why not."""

    assignment: Assignment
    stuck: Mapping[Place, str]


def plan_drain(picture: ClusterPicture, node_id: int) -> Drain:
    """Move every replica of `node_id` to another broker that is alive, and nothing else.

    What another reassignment takes away from the broker anyway stays as it is.
    """
    racks = {broker.node_id: broker.rack for broker in picture.alive if broker.node_id != node_id}
    alive = {broker.node_id for broker in picture.alive}
    loads = ReplicaLoads(
        {each.place: each.target for each in picture.partitions},
        racks,
        {broker.node_id: broker.rack for broker in picture.brokers},
    )
    moved: dict[Place, int] = {}
    was_preferred: list[Place] = []
    stuck: dict[Place, str] = {}
    for partition in sorted(picture.partitions, key=lambda each: each.place):
        place = partition.place
        if node_id not in partition.target:
            continue
        if not alive.intersection(partition.in_sync):
            stuck[place] = "no replica that is in sync is alive to copy from"
            continue
        others = [node for node in partition.target if node != node_id]
        new = loads.best_for(others)
        if new is None:
            stuck[place] = (
                f"it has {len(partition.target)} replicas, and no other broker is alive that has "
                "none of them"
            )
            continue
        loads.replace(place, node_id, new)
        moved[place] = new
        if partition.preferred_leader == node_id:
            was_preferred.append(place)
    _even_out_new(loads, moved)
    for place in was_preferred:
        loads.lead_by_least(place)
    return Drain(assignment={place: tuple(loads.assignment[place]) for place in moved}, stuck=stuck)


def _even_out_new(loads: ReplicaLoads, moved: dict[Place, int]) -> None:
    """Choose again for replicas that move anyway, while a broker has two more than another."""
    is_changed = True
    while is_changed:
        is_changed = False
        for place, node in moved.items():
            replicas = loads.assignment[place]
            others = [each for each in replicas if each != node]
            spread = loads.rack_spread(replicas)
            better = [
                each
                for each in loads.racks
                if each not in replicas
                and loads.load(node) - loads.load(each) >= 2
                and loads.rack_spread([*others, each]) >= spread
            ]
            if better:
                best = min(better, key=lambda each: (loads.load(each), each))
                loads.replace(place, node, best)
                moved[place] = best
                is_changed = True


# --- steps ------------------------------------------------------------------------------------


def _fill(loads: ReplicaLoads, place: Place, original: Sequence[int]) -> None:
    """Replace what is not on the wanted brokers, each at its position."""
    replicas = list(original)
    for index, node in enumerate(original):
        if node not in loads.racks:
            others = [each for each in replicas if each in loads.racks]
            new = loads.best_for(others)
            assert new is not None, (place, original)
            replicas[index] = new
            kept = [each for each in replicas if each in loads.racks]
            loads.set(place, kept)
    loads.set(place, replicas)


def _spread_racks(loads: ReplicaLoads, place: Place) -> None:
    """Move replicas out of racks that have two of them, while that reaches another rack."""
    while not loads.keeps_spread(loads.assignment[place]):
        _reach_rack(loads, place)


def _reach_rack(loads: ReplicaLoads, place: Place) -> None:
    """Move the replica of the fullest broker in a rack that has two, to a rack that has none."""
    replicas = loads.assignment[place]
    racks = [loads.racks[node] for node in replicas]
    doubled = [node for node in replicas if racks.count(loads.racks[node]) > 1]
    old = max(doubled, key=lambda node: (loads.load(node), replicas.index(node)))
    others = [node for node in replicas if node != old]
    new = loads.best_for(others, lambda node: loads.racks[node] not in racks)
    assert new is not None, (place, replicas)
    loads.replace(place, old, new)


def _even_out(loads: ReplicaLoads, original: Mapping[Place, Sequence[int]]) -> None:
    """Each move takes one replica from a broker with at least two more: it must come to an end."""
    while _even_out_once(loads, original):
        pass


def _even_out_once(loads: ReplicaLoads, original: Mapping[Place, Sequence[int]]) -> bool:
    by_load = sorted(loads.racks, key=lambda node: (loads.load(node), node))
    for full in reversed(by_load):
        for free in by_load:
            if loads.load(full) - loads.load(free) < 2:
                break
            place = _movable(loads, full, free, original)
            if place is not None:
                loads.replace(place, full, free)
                return True
    return False


def _movable(
    loads: ReplicaLoads, full: int, free: int, original: Mapping[Place, Sequence[int]]
) -> Place | None:
    """A partition that can go from one broker to the other; one that is new there comes first."""

    def can_go(place: Place) -> bool:
        after = [free if node == full else node for node in loads.assignment[place]]
        return loads.keeps_spread(after)

    candidates = [place for place in loads.places[full] - loads.places[free] if can_go(place)]
    if not candidates:
        return None
    return min(
        candidates,
        key=lambda place: (full in original[place], free not in original[place], place),
    )


def _even_out_leaders(loads: ReplicaLoads) -> None:
    """Put another replica first where that takes leaders from a broker with two more."""
    is_changed = True
    while is_changed:
        is_changed = False
        for place in sorted(loads.assignment):
            first = loads.assignment[place][0]
            loads.lead_by_least(place)
            is_changed |= loads.assignment[place][0] != first
