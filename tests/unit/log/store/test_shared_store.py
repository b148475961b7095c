"""A store that several processes of one node run: each owns its partitions, and only those."""

from random import Random

import pytest

from cordwood.errors import LogError
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.topics.store_share import owner_of
from fakes.manual_clock import ManualClock
from fakes.shared_node import SharedNode
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, open_store

PARTITIONS = 4


def filled(fs: SimulatedFileSystem) -> None:
    with open_store(fs) as store:
        store.create_topic("old", partitions=PARTITIONS)
        for number in range(PARTITIONS):
            store["old"].partition(number).append(b"single %d" % number)


def contents(fs: SimulatedFileSystem, topic: str) -> list[set[bytes]]:
    """What a single process finds later."""
    with open_store(fs) as store:
        return [{r.value or b"" for r in log.read(0)} for log in store[topic].partitions]


def test_processes_add_to_what_a_single_one_wrote_and_a_single_one_reads_it() -> None:
    fs = SimulatedFileSystem()
    filled(fs)
    node = SharedNode(fs, 2)
    node.keeper.create_topic("new", partitions=PARTITIONS)
    node.follow()

    for number in range(PARTITIONS):
        node.append("old", number, b"shared")
        node.append("new", number, b"shared")
    node.close()

    assert contents(fs, "old") == [{b"single %d" % n, b"shared"} for n in range(PARTITIONS)]
    assert contents(fs, "new") == [{b"shared"}] * PARTITIONS
    with open_store(fs) as store:
        assert all(directory.was_clean for directory in store.directories)


def test_a_process_opens_its_own_partitions_and_leaves_the_others_alone() -> None:
    fs = SimulatedFileSystem()
    filled(fs)
    node = SharedNode(fs, 3)

    node.restart(1)

    for index, worker in enumerate(node.workers):
        opened = {log.partition for log in worker.directories.logs()}
        assert opened == {n for n in range(PARTITIONS) if owner_of("old", n, 3) == index}
    assert node.keeper.directories.logs() == []
    node.close()
    assert contents(fs, "old") == [{b"single %d" % n} for n in range(PARTITIONS)]


def test_readers_see_all_partitions_while_the_processes_run() -> None:
    fs = SimulatedFileSystem()
    filled(fs)
    node = SharedNode(fs, 2)
    node.append("old", 1, b"shared")

    reader = ReadOnlyStore([DATA], fs=fs, clock=ManualClock(), defaults=TopicConfig())
    found = [[r.value for r in log.read(0)] for log in reader["old"].partitions]
    reader.close()

    assert found == [[b"single 0"], [b"single 1", b"shared"], [b"single 2"], [b"single 3"]]
    node.close()


def test_a_topic_that_is_deleted_and_created_again_is_new_on_every_process() -> None:
    fs = SimulatedFileSystem()
    filled(fs)
    node = SharedNode(fs, 2)

    node.keeper.delete_topic("old")
    node.keeper.create_topic("old", partitions=PARTITIONS)
    node.restart(0)  # it was away when that was told
    node.follow()
    node.append("old", 0, b"again")
    node.close()

    assert contents(fs, "old") == [{b"again"}, set(), set(), set()]


def test_a_deleted_topic_does_not_come_back_if_its_owner_dies_before_it_is_told() -> None:
    fs = SimulatedFileSystem()
    filled(fs)
    node = SharedNode(fs, 2)

    node.keeper.delete_topic("old")
    node.keeper.registry.sync()
    after = fs.kill()

    with open_store(after) as store:
        assert store.topics() == []


def test_changes_through_the_inbox_are_refused() -> None:
    fs = SimulatedFileSystem()
    filled(fs)
    node = SharedNode(fs, 2)

    with pytest.raises(LogError, match="several processes"):
        node.keeper.changes._make("id", None, wait=True)  # type: ignore[arg-type]
    node.close()


@pytest.mark.parametrize("seed", range(20))
def test_what_was_acknowledged_survives_kills_power_cuts_and_another_number(seed: int) -> None:
    random = Random(seed)
    fs = SimulatedFileSystem()
    filled(fs)
    acknowledged = {("old", n): {b"single %d" % n} for n in range(PARTITIONS)}
    for life in range(4):
        node = SharedNode(fs, random.randint(1, 3))
        if life == 1:
            node.keeper.create_topic("new", partitions=PARTITIONS)
            acknowledged |= {("new", n): set() for n in range(PARTITIONS)}
            node.follow()
        for turn in range(12):
            place = random.choice(sorted(acknowledged))
            value = b"%d %d" % (life, turn)
            node.append(*place, value)
            acknowledged[place].add(value)
            if random.random() < 0.2:
                node.restart(random.randrange(node.count))
        match random.randrange(3):
            case 0:
                node.close()
            case 1:
                fs = fs.kill()
            case _:
                fs = fs.crash(random)

    for topic in ("old", "new"):
        assert contents(fs, topic) == [acknowledged[topic, n] for n in range(PARTITIONS)]
