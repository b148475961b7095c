"""A replica moves to another data directory: whatever the moment, one of the two is whole."""

from __future__ import annotations

from random import Random

import pytest

from cordwood.errors import StorageError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.store.store import Store
from cordwood.log.topics.replica_swap import REBUILD_MARK, NewReplica
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.quantities import LeaderEpoch
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store
from unit.log.topics.test_replica_swap import CHANGING, CONFIG, EPOCH, ID, OLD, values

FIRST, SECOND = "/disk-1", "/disk-2"


def member(fs: SimulatedFileSystem) -> Store:
    return open_store(fs, role=AMONG_OTHERS, directories=(FIRST, SECOND))


def with_replica(fs: SimulatedFileSystem) -> Store:
    """Its replica is in the first directory."""
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
    assert log.directory == f"{FIRST}/orders-0"
    return store


def copied(store: Store) -> NewReplica:
    """A whole copy in the second directory."""
    new = store.hosting.swaps.begin("orders", ID, 0, into=SECOND)
    old = store.topic("orders").partition(0)
    new.log.replica.follow(EPOCH)
    while new.log.end_offset < old.end_offset:
        found = old.replica.read(new.log.end_offset, max_bytes=1 << 20)
        assert found is not None
        data = found.file.read_at(found.position, found.length)
        new.log.replica.append(data, leader_epoch=EPOCH)
    new.log.sync()
    new.log.replica.raise_high_watermark(new.log.end_offset)
    return new


def left_over(fs: SimulatedFileSystem) -> list[str]:
    return [
        entry.name
        for path in (FIRST, SECOND)
        for entry in fs.list(path)
        if entry.name.endswith(("-future", "-stray"))
    ]


def directory_of(log: PartitionLog) -> str:
    return log.directory.rpartition("/")[0]


def test_a_moved_replica_is_read_from_its_new_directory() -> None:
    fs = SimulatedFileSystem()
    with with_replica(fs) as store:
        new = copied(store)
        futures = store.directories.future_replicas()
        assert {path: list(found) for path, found in futures.items()} == {SECOND: [("orders", 0)]}

        log = store.hosting.swaps.swap(new)

        assert log is store.topic("orders").partition(0)
        assert (directory_of(log), values(log), log.high_watermark) == (SECOND, OLD, len(OLD))
        assert not left_over(fs)
        assert not fs.exists(f"{FIRST}/orders-0")
        assert not fs.exists(f"{SECOND}/orders-0/{REBUILD_MARK}")
        assert store.directories.future_replicas() == {}
        sizes = store.directories.partition_sizes()
        assert (list(sizes[FIRST]), list(sizes[SECOND])) == ([], [("orders", 0)])
    with member(fs) as store:
        log = store.topic("orders").partition(0)
        assert (directory_of(log), values(log)) == (SECOND, OLD)
        assert store.damages() == []


@pytest.mark.parametrize("seed", range(6))
def test_a_power_cut_at_any_moment_leaves_one_whole_replica_in_one_directory(seed: int) -> None:
    fs = SimulatedFileSystem()
    rng = Random(seed)
    store = with_replica(fs)
    left: list[SimulatedFileSystem] = []

    def cut(operation: str, path: str) -> None:
        if operation in CHANGING:
            left.append(fs.kill() if rng.random() < 0.3 else fs.crash(Random(rng.random())))

    fs.watch = cut
    store.hosting.swaps.swap(copied(store))
    fs.watch = None
    store.close()

    found = set()
    for after in left:
        with member(after) as store:
            log = store.topic("orders").partition(0)
            where = directory_of(log)
            assert values(log) == OLD
            assert store.damages() == []
            assert not left_over(after)
            other = FIRST if where == SECOND else SECOND
            assert not after.exists(f"{other}/orders-0")
            found.add(where)
        with member(after) as store:  # and once more, now that it is tidy
            log = store.topic("orders").partition(0)
            assert (directory_of(log), values(log)) == (where, OLD)
    assert found == {FIRST, SECOND}
    assert len(left) > 20


def test_a_copy_is_kept_while_the_directory_that_can_tell_is_offline() -> None:
    fs = SimulatedFileSystem()
    store = with_replica(fs)
    stopped: list[SimulatedFileSystem] = []

    def cut(operation: str, path: str) -> None:
        if operation == "rename" and path.endswith("-future") and not stopped:
            stopped.append(fs.kill())

    new = copied(store)
    fs.watch = cut
    store.hosting.swaps.swap(new)
    fs.watch = None
    store.close()
    [after] = stopped

    after.fail_next("lock", OSError(5, "Input/output error"), path_ends=FIRST)
    member(after).close()
    kept = left_over(after)
    with member(after) as store:
        log = store.topic("orders").partition(0)
        assert (directory_of(log), values(log)) == (SECOND, OLD)

    assert sorted(name.rpartition("-")[2] for name in kept) == ["future", "stray"]
    assert not left_over(after)


def test_a_topic_that_was_deleted_meanwhile_leaves_no_copy() -> None:
    fs = SimulatedFileSystem()
    with with_replica(fs) as store:
        new = copied(store)
        store.hosting.unhost("orders", ID)

        with pytest.raises(StorageError, match="is not here any more"):
            store.hosting.swaps.swap(new)

        assert not left_over(fs)
        assert store.directories.future_replicas() == {}


def test_a_replica_is_replaced_or_moved_once_at_a_time() -> None:
    fs = SimulatedFileSystem()
    with with_replica(fs) as store:
        new = copied(store)

        with pytest.raises(StorageError, match="is being replaced or moved already"):
            store.hosting.swaps.begin("orders", ID, 0)

        store.hosting.swaps.give_up(new)
        assert not left_over(fs)
        store.hosting.swaps.give_up(store.hosting.swaps.begin("orders", ID, 0))


def test_a_directory_that_is_not_there_is_refused() -> None:
    with (
        with_replica(SimulatedFileSystem()) as store,
        pytest.raises(StorageError, match="/disk-3 is not a data directory that can be used"),
    ):
        store.hosting.swaps.begin("orders", ID, 0, into="/disk-3")
