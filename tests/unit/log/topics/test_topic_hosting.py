"""The partitions of a cluster's topics that a broker has, as the controllers decide."""

from dataclasses import replace
from random import Random
from uuid import UUID

import pytest

from cordwood.errors import NotLeaderError
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.store.store import Store
from cordwood.log.topics.topic_catalog import CatalogChange
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.quantities import LeaderEpoch
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

ID = UUID(int=5)
OTHER_ID = UUID(int=6)


def hosted(*here: int, count: int = 3, topic_id: UUID = ID, **config: str) -> HostedTopic:
    return HostedTopic(
        name="orders",
        topic_id=topic_id,
        partitions=count,
        here=frozenset(here),
        config={key.replace("_", "."): value for key, value in config.items()},
    )


def open_member(fs: SimulatedFileSystem) -> Store:
    return open_store(fs, role=AMONG_OTHERS)


def write(store: Store, number: int, epoch: int = 1) -> None:
    log = store.topic("orders").partition(number)
    log.replica.lead(LeaderEpoch(epoch))
    log.batches.append_batch(client_batch(b"x"))
    log.sync()


def directories(fs: SimulatedFileSystem) -> set[str]:
    return {
        entry.name
        for entry in fs.list(DATA)
        if entry.is_directory and not entry.name.endswith("-delete")
    }


def test_only_assigned_partitions_have_files() -> None:
    fs = SimulatedFileSystem()

    with open_member(fs) as store:
        topic = store.hosting.host(hosted(0, 2))

        assert directories(fs) == {"orders-0", "orders-2"}
        assert topic.partition_count == 3
        assert topic.topic_id == ID
        assert [topic.is_here(n) for n in range(4)] == [True, False, True, False]
        assert store.registry.log("orders", 1) is None
        with pytest.raises(NotLeaderError, match="orders-1"):
            topic.partition(1)
        assert [log.partition for log in topic.partitions] == [0, 2]


def test_a_restart_makes_no_partition_that_is_elsewhere() -> None:
    fs = SimulatedFileSystem()
    with open_member(fs) as store:
        store.hosting.host(hosted(2))
        write(store, 2)

    with open_member(fs) as store:
        assert directories(fs) == {"orders-2"}
        assert store.topic("orders").partition(2).end_offset == 1
        assert not store.topic("orders").is_here(0)


def test_a_partition_that_is_moved_away_leaves_nothing_behind() -> None:
    fs = SimulatedFileSystem()
    with open_member(fs) as store:
        topic = store.hosting.host(hosted(0, 1))
        write(store, 0)
        write(store, 1)
        gone = topic.partition(1)

        store.hosting.host(hosted(0))

        assert gone.is_closed
        assert directories(fs) == {"orders-0"}
        assert topic.partition(0).end_offset == 1


def test_a_partition_that_comes_back_begins_anew() -> None:
    with open_member(SimulatedFileSystem()) as store:
        topic = store.hosting.host(hosted(0, 1))
        write(store, 1)
        store.hosting.host(hosted(0))

        store.hosting.host(hosted(0, 1))

        assert topic.partition(1).end_offset == 0


def test_a_crash_before_a_moved_partition_is_removed_leaves_it_to_the_next_start() -> None:
    fs = SimulatedFileSystem()
    with open_member(fs) as store:
        store.hosting.host(hosted(0, 1))
        write(store, 1)
    with open_member(fs) as store:
        catalog = store._catalog
        entry = catalog.topics["orders"]
        catalog.apply(CatalogChange(put=(replace(entry, absent=0b110, begun=0),)))
        store.abandon()

    with open_member(fs) as store:
        assert directories(fs) == {"orders-0"}
        assert not store.topic("orders").is_here(1)


def test_a_topic_that_grows_gets_its_new_partitions_and_keeps_the_others() -> None:
    with open_member(SimulatedFileSystem()) as store:
        topic = store.hosting.host(hosted(0, count=1))
        write(store, 0)

        store.hosting.host(hosted(0, 2, count=4))

        assert topic.partition_count == 4
        assert topic.partition(0).end_offset == 1
        assert topic.partition(2).end_offset == 0


def test_another_topic_of_the_same_name_replaces_the_first() -> None:
    with open_member(SimulatedFileSystem()) as store:
        store.hosting.host(hosted(0))
        write(store, 0)

        topic = store.hosting.host(hosted(0, topic_id=OTHER_ID))

        assert topic.topic_id == OTHER_ID
        assert topic.partition(0).end_offset == 0


def test_settings_of_the_controllers_are_those_of_the_topic() -> None:
    with open_member(SimulatedFileSystem()) as store:
        topic = store.hosting.host(hosted(0, retention_ms="1000"))

        store.hosting.host(hosted(0, retention_ms="2000", min_insync_replicas="2"))

        assert topic.config.retention_ms == 2000
        assert topic.partition(0).config.min_insync_replicas == 2


def test_a_topic_is_removed_only_by_its_own_id() -> None:
    with open_member(SimulatedFileSystem()) as store:
        store.hosting.host(hosted(0))

        store.hosting.unhost("orders", OTHER_ID)
        assert store.registry.find("orders") is not None

        store.hosting.unhost("orders", ID)
        assert store.registry.find("orders") is None


def open_two(fs: SimulatedFileSystem) -> Store:
    return open_store(fs, directories=(DATA, "/other"), role=AMONG_OTHERS)


def test_a_partition_whose_directory_was_replaced_is_gone_and_can_be_made_anew() -> None:
    fs = SimulatedFileSystem()
    with open_two(fs) as store:
        store.hosting.host(hosted(0, 1, count=2))
        for number in range(2):
            write(store, number)
        assert not store.hosting.missing()
        lost = next(n for n in range(2) if fs.exists(f"/other/orders-{n}"))
    fs.remove_tree("/other")

    with open_two(fs) as store:
        assert store.hosting.missing() == [("orders", lost)]
        assert store.hosting.is_gone("orders", lost)
        assert not store.hosting.is_gone("orders", 1 - lost)
        wanted = hosted(0, 1, count=2)
        store.hosting.host(wanted)  # what is lost does not come back by itself
        assert store.hosting.is_gone("orders", lost)

        topic = store.hosting.host_again(wanted, lost)

        assert topic.partition(lost).end_offset == 0
        assert topic.partition(1 - lost).end_offset == 1
        assert not store.hosting.missing()
        write(store, lost, epoch=2)
    with open_two(fs) as store:
        assert store.topic("orders").partition(lost).end_offset == 1


def test_a_partition_in_a_directory_that_is_offline_is_not_gone() -> None:
    fs = SimulatedFileSystem()
    with open_two(fs) as store:
        store.hosting.host(hosted(0, 1, count=2))
        for number in range(2):
            write(store, number)
        lost = next(n for n in range(2) if fs.exists(f"/other/orders-{n}"))
    fs.remove("/other/meta.properties")
    fs.make_directory("/other/meta.properties")

    with open_two(fs) as store:
        assert store.hosting.missing() == [("orders", lost)]
        assert not store.hosting.is_gone("orders", lost)


def test_a_topic_that_is_set_aside_keeps_its_files_through_restarts() -> None:
    fs = SimulatedFileSystem()
    with open_member(fs) as store:
        store.hosting.host(hosted(0, 2))
        write(store, 2)

        assert store.hosting.set_aside("orders", UUID(int=99)) == []
        kept = store.hosting.set_aside("orders", ID)

        assert store.topics() == []
    with open_member(fs) as store:
        assert store.topics() == []
    assert len(kept) == 2
    assert all(path.endswith("-stray") for path in kept)
    assert directories(fs) == {path.rpartition("/")[2] for path in kept}
    [with_records] = [path for path in kept if "orders-2." in path]
    assert fs.size(f"{with_records}/{0:020d}.log") > 0


def test_a_crash_while_a_topic_is_set_aside_removes_nothing() -> None:
    calls = 0
    while True:
        calls += 1
        fs = SimulatedFileSystem()
        store = open_member(fs)
        store.hosting.host(hosted(0, 2))
        write(store, 2)
        fs.fail_at(calls, OSError("crash"))
        try:
            store.hosting.set_aside("orders", ID)
        except OSError:
            is_over = False
        else:
            is_over = True
        fs.clear_faults()
        after = fs.crash(Random(calls))
        store.abandon()
        with open_member(after):
            pass

        found = [name for name in directories(after) if name.startswith("orders-2")]
        assert len(found) == 1, calls
        assert after.size(f"{DATA}/{found[0]}/{0:020d}.log") > 0
        if is_over:
            break
