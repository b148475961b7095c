"""A new replica takes the place of the old one: whatever the moment, one of the two is whole."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from cordwood.errors import StorageError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.store.store import Store
from cordwood.log.topics.replica_swap import REBUILD_MARK, NewReplica
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.quantities import LeaderEpoch, Offset
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

ID = UUID(int=5)
EPOCH = LeaderEpoch(3)
OLD = [b"old %d" % number for number in range(6)]
NEW = [b"new %d" % number for number in range(4)]
CHANGING = {
    "create", "make_directory", "remove", "remove_tree", "rename", "sync", "sync_directory",
    "truncate_to", "write_at",
}  # fmt: skip
CONFIG = {"segment.records": "2", "file.delete.delay.ms": "0"}


def member(fs: SimulatedFileSystem) -> Store:
    return open_store(fs, role=AMONG_OTHERS)


def with_old_replica(fs: SimulatedFileSystem) -> Store:
    store = member(fs)
    store.hosting.host(
        HostedTopic(
            name="orders", topic_id=ID, partitions=1, here=frozenset({0}), config=dict(CONFIG)
        )
    )
    log = store.topic("orders").partition(0)
    log.replica.lead(LeaderEpoch(1))
    for value in OLD:
        log.batches.append_batch(client_batch(value))
    log.sync()
    log.replica.raise_high_watermark(log.end_offset)
    log.replica.follow(EPOCH)
    return store


def filled(store: Store) -> NewReplica:
    """A new replica with what a leader would have sent: other records, from offset 2 on."""
    new = store.hosting.swaps.begin("orders", ID, 0)
    new.log.replica.follow(EPOCH)
    new.log.replica.restart_at(Offset(2), leader_epoch=EPOCH)
    other = SimulatedFileSystem()
    with open_store(other, role=AMONG_OTHERS) as source:
        source.hosting.host(
            HostedTopic(name="orders", topic_id=ID, partitions=1, here=frozenset({0}), config={})
        )
        leader = source.topic("orders").partition(0)
        leader.replica.lead(LeaderEpoch(2))
        for value in (b"gone", b"gone", *NEW):
            leader.batches.append_batch(client_batch(value))
        leader.sync()
        found = leader.replica.read(Offset(2), max_bytes=1 << 20)
        assert found is not None
        data = bytes(found.file.read_at(found.position, found.length))
    new.log.replica.append(data, leader_epoch=EPOCH)
    new.log.sync()
    new.log.replica.raise_high_watermark(new.log.end_offset)
    return new


def values(log: PartitionLog) -> list[bytes | None]:
    """All records, whatever the marks say after a power cut: the machines raise them."""
    if not log.is_closed:
        log.replica.raise_high_watermark(log.end_offset)
    return [record.value for record in log.read()]


def left_over(fs: SimulatedFileSystem) -> list[str]:
    return [entry.name for entry in fs.list(DATA) if entry.name.endswith(("-future", "-stray"))]


def test_the_new_replica_is_read_from_the_place_of_the_old_one() -> None:
    fs = SimulatedFileSystem()
    with with_old_replica(fs) as store:
        old = store.topic("orders").partition(0)
        new = filled(store)
        assert values(old) == OLD

        log = store.hosting.swaps.swap(new)

        assert log is store.topic("orders").partition(0)
        assert old.is_closed
        assert values(log) == NEW
        assert (log.start_offset, log.end_offset, log.high_watermark) == (2, 6, 6)
        assert log.replica.last_epoch == 2
        assert not left_over(fs)
        assert not fs.exists(f"{DATA}/orders-0/{REBUILD_MARK}")
    with member(fs) as store:
        assert values(store.topic("orders").partition(0)) == NEW
        assert store.damages() == []


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_at_any_moment_leaves_the_old_replica_or_the_new_one(seed: int) -> None:
    fs = SimulatedFileSystem()
    rng = Random(seed)
    store = with_old_replica(fs)
    left: list[SimulatedFileSystem] = []

    def cut(operation: str, path: str) -> None:
        if operation in CHANGING:
            left.append(fs.kill() if rng.random() < 0.3 else fs.crash(Random(rng.random())))

    fs.watch = cut
    store.hosting.swaps.swap(filled(store))
    fs.watch = None
    store.close()

    found = set()
    for after in left:
        with member(after) as store:
            log = store.topic("orders").partition(0)
            is_new = log.start_offset == 2
            assert values(log) == (NEW if is_new else OLD)
            assert log.end_offset == 6
            assert store.damages() == []
            assert not left_over(after)
            found.add(is_new)
        with member(after) as store:  # and once more, now that it is tidy
            assert values(store.topic("orders").partition(0)) == (NEW if is_new else OLD)
    assert found == {False, True}
    assert len(left) > 20


def test_a_replica_that_is_given_up_leaves_nothing() -> None:
    fs = SimulatedFileSystem()
    with with_old_replica(fs) as store:
        new = filled(store)

        store.hosting.swaps.give_up(new)
        store.hosting.swaps.give_up(new)

        assert not left_over(fs)
        assert values(store.topic("orders").partition(0)) == OLD


def test_directories_of_kafka_are_left_alone() -> None:
    fs = SimulatedFileSystem()
    with_old_replica(fs).close()
    names = ["orders-0.0123456789abcdef-future", "orders-0.0123456789abcdef-stray"]
    for name in names:
        fs.make_directory(f"{DATA}/{name}")

    with member(fs) as store:
        assert values(store.topic("orders").partition(0)) == OLD

    assert sorted(left_over(fs)) == names


def test_a_topic_that_is_gone_is_not_swapped_in() -> None:
    fs = SimulatedFileSystem()
    with with_old_replica(fs) as store:
        new = filled(store)
        store.hosting.unhost("orders", ID)

        with pytest.raises(StorageError, match="is not here any more"):
            store.hosting.swaps.swap(new)

        store.hosting.swaps.give_up(new)
        assert not left_over(fs)
        with pytest.raises(StorageError, match="has no replica here"):
            store.hosting.swaps.begin("orders", ID, 0)
