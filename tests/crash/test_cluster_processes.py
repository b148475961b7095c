"""What judges and plans the runs of real clusters; the runs are in tests/interop."""

from __future__ import annotations

import pytest

from crash.cluster_processes.ledger import decode_observations, encode_observations
from crash.cluster_processes.nemesis import KINDS, Places, Skies, plan_faults
from crash.cluster_processes.verdict import (
    CommitRead,
    Observations,
    Stored,
    compare_replicas,
    judge,
)
from crash.cluster_processes.virtual_switch import Weather

PLACES = Places(brokers=(1, 2, 3), controllers=(4, 5, 6), clients=7)


def observations() -> Observations:
    """Two values of one producer, written and read as they should be."""
    return Observations(
        sent={("0.0", 0): ["a", "b", "c"]},
        acknowledged=[Stored(0, 0, "a"), Stored(0, 1, "b")],
        read=[Stored(0, 0, "a"), Stored(0, 1, "b")],
        commits=[CommitRead(3, 4, 5, False)],
        final={0: [(0, "a"), (1, "b")]},
    )


def kinds_of(seen: Observations) -> set[str]:
    return {violation.kind for violation in judge(seen)}


def test_a_run_without_a_violation_has_none() -> None:
    assert judge(observations()) == []


def test_an_acknowledged_value_that_is_gone_is_found() -> None:
    seen = observations()
    seen.final = {0: [(0, "a")]}

    assert kinds_of(seen) == {"acknowledged loss", "changed offset"}


def test_an_acknowledgement_without_an_offset_is_found_by_its_value() -> None:
    seen = observations()
    seen.acknowledged = [Stored(0, -1, "a"), Stored(0, -1, "c")]

    assert [str(each) for each in judge(seen)] == [
        "acknowledged loss: c was acknowledged at 0/-1, now None"
    ]


def test_an_offset_that_changed_is_found() -> None:
    seen = observations()
    seen.conflicts = [(Stored(0, 1, "b"), Stored(0, 1, "c"))]

    assert kinds_of(seen) == {"changed offset"}


@pytest.mark.parametrize(
    ("final", "kind"),
    [
        ([(0, "a"), (1, "b"), (2, "a")], "duplicate"),
        ([(0, "a"), (1, "b"), (3, "c")], "gap"),
        ([(0, "a"), (1, "b"), (2, "x")], "foreign"),
    ],
)
def test_a_log_with_what_nobody_sent_there_is_found(
    final: list[tuple[int, str]], kind: str
) -> None:
    seen = observations()
    seen.final = {0: final}

    assert kinds_of(seen) == {kind}


def test_values_in_another_order_are_found() -> None:
    seen = observations()
    seen.acknowledged, seen.read = [], []
    seen.final = {0: [(0, "b"), (1, "a")]}

    assert kinds_of(seen) == {"disorder"}


@pytest.mark.parametrize("found", [2, 6])
def test_a_commit_that_is_lost_or_made_up_is_found(found: int) -> None:
    seen = observations()
    seen.commits = [CommitRead(3, found, 5, False)]

    assert kinds_of(seen) == {"lost commit"}


def test_a_commit_without_an_answer_may_be_carried_out_late() -> None:
    seen = observations()
    seen.commits = [CommitRead(3, 2, 5, True)]

    assert judge(seen) == []


def test_sends_that_took_too_long_are_found() -> None:
    seen = observations()
    seen.errors = {"_MSG_TIMED_OUT": 3, "INVALID_RECORD": 4}

    assert [str(each) for each in judge(seen)] == [
        "stuck: 3 sends that the producer gave up after minutes"
    ]


def test_replicas_with_other_bytes_are_found() -> None:
    assert compare_replicas("t-0", {1: b"abc", 2: b"abc"}) == []

    [found] = compare_replicas("t-0", {1: b"abc", 2: b"abx"})

    assert "the same up to 2" in found.what


def test_observations_survive_the_file() -> None:
    seen = observations()
    seen.conflicts = [(Stored(0, 1, "b"), Stored(0, 1, "c"))]

    assert decode_observations(encode_observations(seen)) == seen


def test_a_seed_plans_the_same_faults_every_time_and_all_kinds() -> None:
    faults = plan_faults(7, PLACES, count=400, pause_s=4)

    assert faults == plan_faults(7, PLACES, count=400, pause_s=4)
    assert {fault.kind for fault in faults} == set(KINDS)
    assert faults == sorted(faults, key=lambda fault: fault.begin_s)


def test_a_bridge_sees_both_sides_which_do_not_see_each_other() -> None:
    [bridge, *_] = plan_faults(1, PLACES, count=9, pause_s=4, kinds=["bridge"])
    others = [place for place in PLACES.nodes if place != bridge.target]

    assert not any(bridge.target in link for link in bridge.cuts)
    assert all((b, a) in bridge.cuts for a, b in bridge.cuts)
    assert {place for link in bridge.cuts for place in link} == set(others)


def test_faults_of_the_network_add_up_and_end_alone() -> None:
    [first, second] = plan_faults(3, PLACES, count=2, pause_s=4, kinds=["one_way"])
    skies = Skies([first, second])

    assert skies.weather().cuts == first.cuts | second.cuts
    skies.faults.remove(first)
    assert skies.weather().cuts == second.cuts
    assert Weather.decode(skies.weather().encode()) == skies.weather()
