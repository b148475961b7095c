"""Reading the offsets topic in steps comes to the same as reading it at once."""

from __future__ import annotations

from random import Random

import pytest

from cordwood.log.store.store import Store
from cordwood.log.topics import committed_offsets
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

GROUPS = ("a", "b", "c")


def commit_at_random(store: Store, rng: Random) -> None:
    """Plain commits, and commits in transactions of which some overlap, are aborted or open."""
    open_ones = {name: store.transaction(name) for name in ("one", "two", "three")}
    entered: set[str] = set()
    for number in range(60):
        name = rng.choice(list(open_ones))
        transaction, group = open_ones[name], rng.choice(GROUPS)
        place = ("orders", rng.randrange(2))
        chance = rng.random()
        if chance < 0.4:
            store.group(group).commit({place: number})
        elif chance < 0.5:
            store.committed_offsets.remove(group, [place])
        elif name not in entered:
            transaction.__enter__()
            entered.add(name)
        elif chance < 0.8:
            transaction.commit_offsets(group, {place: number})
        else:
            (transaction.commit if chance < 0.93 else transaction.abort)()
            entered.discard(name)


def offsets_of(store: Store) -> dict[str, dict[tuple[str, int], int]]:
    found = store.committed_offsets
    return {
        group: {place: int(at.offset) for place, at in found.of_group(group).items()}
        for group in GROUPS
    }


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("step", [1, 2, 7, 50_000])
def test_in_steps_and_at_once(seed: int, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = SimulatedFileSystem(clock=ManualClock())
    store = open_store(fs)
    store.create_topic("orders", partitions=2)
    commit_at_random(store, Random(seed))
    expected = offsets_of(store)
    pending = {group: store.committed_offsets.pending_places(group) for group in GROUPS}

    monkeypatch.setattr(committed_offsets, "_RECORDS_PER_WALK", step)
    for from_start in (False, True):
        again = open_store(fs.kill())
        if from_start:
            again.committed_offsets.load()

        assert offsets_of(again) == expected
        assert {group: again.committed_offsets.pending_places(group) for group in GROUPS} == pending
