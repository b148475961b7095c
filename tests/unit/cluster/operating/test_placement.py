"""Where replicas go: properties that every plan has, and examples that people expect."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.operating.cluster_picture import (
    BrokerPicture,
    BrokerState,
    ClusterPicture,
    PartitionPicture,
    Place,
)
from cordwood.cluster.operating.placement import plan_drain, plan_spread
from cordwood.errors import ConfigError


def brokers(count: int, racks: int = 0) -> list[BrokerPicture]:
    return [
        BrokerPicture(node_id=number, rack=f"r{number % racks}" if racks else None)
        for number in range(1, count + 1)
    ]


def partition(number: int, *replicas: int, topic: str = "orders") -> PartitionPicture:
    return PartitionPicture(
        place=Place(topic, number), leader=replicas[0], replicas=replicas, in_sync=replicas
    )


def cluster(nodes: list[BrokerPicture], partitions: list[PartitionPicture]) -> ClusterPicture:
    return ClusterPicture(cluster_id="c", brokers=tuple(nodes), partitions=tuple(partitions))


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[BrokerPicture], list[PartitionPicture]]:
    count = draw(st.integers(1, 7))
    racks = draw(st.sampled_from([0, 0, 2, 3]))
    nodes = brokers(count, racks)
    ids = [broker.node_id for broker in nodes]
    factor = draw(st.integers(1, min(count, 3)))
    replicas = st.permutations(ids).map(lambda order: tuple(order[:factor]))
    found = draw(st.lists(replicas, min_size=1, max_size=12))
    return nodes, [partition(number, *each) for number, each in enumerate(found)]


def rack_count(replicas: tuple[int, ...], racks: dict[int, str | None]) -> int:
    return len({racks[node] for node in replicas})


# --- reassigning to brokers ---------------------------------------------------------------------


@given(clusters(), st.data())
def test_a_plan_keeps_factor_brokers_and_racks(
    drawn: tuple[list[BrokerPicture], list[PartitionPicture]], data: st.DataObject
) -> None:
    nodes, partitions = drawn
    factor = len(partitions[0].replicas)
    targets = data.draw(
        st.lists(st.sampled_from(nodes), min_size=factor, unique_by=lambda each: each.node_id)
    )

    planned = plan_spread(partitions, targets)

    ids = {broker.node_id for broker in targets}
    racks = {broker.node_id: broker.rack for broker in targets}
    has_racks = None not in racks.values()
    assert set(planned) == {each.place for each in partitions}
    for replicas in planned.values():
        assert len(replicas) == factor
        assert len(set(replicas)) == factor
        assert set(replicas) <= ids
        if has_racks:
            assert rack_count(replicas, racks) == min(factor, len(set(racks.values())))


@given(clusters(), st.data())
def test_without_racks_no_broker_has_two_more_than_another(
    drawn: tuple[list[BrokerPicture], list[PartitionPicture]], data: st.DataObject
) -> None:
    nodes, partitions = drawn
    factor = len(partitions[0].replicas)
    chosen = data.draw(
        st.lists(st.sampled_from(nodes), min_size=factor, unique_by=lambda each: each.node_id)
    )
    targets = [BrokerPicture(node_id=each.node_id) for each in chosen]

    planned = plan_spread(partitions, targets)

    loads = Counter({each.node_id: 0 for each in targets})
    loads.update(node for replicas in planned.values() for node in replicas)
    leads = Counter({each.node_id: 0 for each in targets})
    leads.update(replicas[0] for replicas in planned.values())
    assert max(loads.values()) - min(loads.values()) <= 1
    assert sum(leads.values()) == len(partitions)


@given(st.integers(1, 6), st.lists(st.integers(1, 8), min_size=1, max_size=20))
def test_a_plan_copies_what_is_elsewhere_or_above_the_fair_share_and_no_more(
    count: int, homes: list[int]
) -> None:
    partitions = [partition(number, home) for number, home in enumerate(homes)]

    planned = plan_spread(partitions, brokers(count))

    copies = sum(planned[each.place] != each.replicas for each in partitions)
    elsewhere = sum(home > count for home in homes)
    kept = Counter(home for home in homes if home <= count)
    above = sum(max(0, number - len(homes) // count) for number in kept.values())
    assert elsewhere <= copies <= elsewhere + above


@given(clusters())
def test_a_plan_of_a_plan_changes_nothing(
    drawn: tuple[list[BrokerPicture], list[PartitionPicture]],
) -> None:
    nodes, partitions = drawn
    planned = plan_spread(partitions, nodes)

    again = plan_spread(
        [partition(place.partition, *replicas) for place, replicas in planned.items()], nodes
    )

    assert again == planned


def test_a_new_broker_gets_its_share() -> None:
    partitions = [partition(number, *order) for number, order in enumerate([(1, 2), (2, 1)] * 4)]

    planned = plan_spread(partitions, brokers(4))

    loads = Counter(node for replicas in planned.values() for node in replicas)
    assert loads == {1: 4, 2: 4, 3: 4, 4: 4}
    assert Counter(replicas[0] for replicas in planned.values()) == {1: 2, 2: 2, 3: 2, 4: 2}


def test_replicas_in_one_rack_are_spread() -> None:
    nodes = [
        BrokerPicture(node_id=1, rack="a"),
        BrokerPicture(node_id=2, rack="a"),
        BrokerPicture(node_id=3, rack="b"),
    ]

    planned = plan_spread([partition(0, 1, 2)], nodes)

    assert set(planned[Place("orders", 0)]) in ({1, 3}, {2, 3})


def test_too_few_brokers_are_refused_with_the_partition() -> None:
    with pytest.raises(ConfigError, match="are 2 brokers, but orders-0 has 3 replicas"):
        plan_spread([partition(0, 1, 2, 3)], brokers(2))


# --- draining -----------------------------------------------------------------------------------


@given(clusters(), st.data())
def test_a_drain_moves_each_replica_of_the_broker_once_and_nothing_else(
    drawn: tuple[list[BrokerPicture], list[PartitionPicture]], data: st.DataObject
) -> None:
    nodes, partitions = drawn
    node_id = data.draw(st.sampled_from(nodes)).node_id

    planned = plan_drain(cluster(nodes, partitions), node_id)

    racks = {broker.node_id: broker.rack for broker in nodes if broker.node_id != node_id}
    has_racks = bool(racks) and None not in racks.values()
    for each in partitions:
        if node_id not in each.replicas:
            assert each.place not in planned.assignment
        elif len(each.replicas) > len(racks):
            assert "no other broker is alive" in planned.stuck[each.place]
        else:
            after = planned.assignment[each.place]
            others = set(each.replicas) - {node_id}
            assert node_id not in after
            assert len(set(after)) == len(after) == len(each.replicas)
            assert others < set(after)
            if has_racks:  # one replica reaches at most one more rack
                reached = {racks[node] for node in others}
                is_possible = bool(set(racks.values()) - reached)
                assert rack_count(after, racks) == len(reached) + is_possible


@given(clusters(), st.data())
def test_no_other_choice_for_a_drained_replica_would_even_out_the_brokers(
    drawn: tuple[list[BrokerPicture], list[PartitionPicture]], data: st.DataObject
) -> None:
    with_racks, partitions = drawn
    nodes = [BrokerPicture(node_id=each.node_id) for each in with_racks]
    node_id = data.draw(st.sampled_from(nodes)).node_id

    planned = plan_drain(cluster(nodes, partitions), node_id)

    after = {each.place: each.replicas for each in partitions} | planned.assignment
    loads = Counter({each.node_id: 0 for each in nodes if each.node_id != node_id})
    loads.update(node for replicas in after.values() for node in replicas if node != node_id)
    for each in partitions:
        if each.place in planned.assignment:
            replicas = planned.assignment[each.place]
            [new] = set(replicas) - set(each.replicas)
            assert all(loads[new] - loads[node] < 2 for node in loads if node not in replicas)


def test_the_leaderships_of_a_drained_broker_are_shared_out() -> None:
    nodes = brokers(4)
    partitions = [partition(number, 1, 2, 3) for number in range(9)]

    planned = plan_drain(cluster(nodes, partitions), 1)

    leads = Counter(replicas[0] for replicas in planned.assignment.values())
    assert leads == {2: 3, 3: 3, 4: 3}


def test_a_partition_without_a_living_copy_is_stuck() -> None:
    nodes = [
        BrokerPicture(node_id=1, state=BrokerState.FENCED),
        BrokerPicture(node_id=2),
    ]

    planned = plan_drain(cluster(nodes, [partition(0, 1)]), 1)

    assert not planned.assignment
    assert "no replica that is in sync is alive" in planned.stuck[Place("orders", 0)]


def test_a_dead_broker_is_drained_from_the_others() -> None:
    nodes = [
        BrokerPicture(node_id=1, state=BrokerState.FENCED),
        BrokerPicture(node_id=2),
        BrokerPicture(node_id=3),
    ]
    behind = PartitionPicture(place=Place("orders", 0), leader=2, replicas=(1, 2), in_sync=(2,))

    planned = plan_drain(cluster(nodes, [behind]), 1)

    assert set(planned.assignment[behind.place]) == {2, 3}


def test_what_leaves_the_broker_anyway_is_left_alone() -> None:
    moving = PartitionPicture(
        place=Place("orders", 0),
        leader=1,
        replicas=(2, 3, 1),
        in_sync=(1, 2),
        adding=(3,),
        removing=(1,),
    )

    planned = plan_drain(cluster(brokers(3), [moving]), 1)

    assert not planned.assignment
    assert not planned.stuck
