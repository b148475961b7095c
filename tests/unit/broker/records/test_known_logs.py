"""What is kept for each log: found by name and by id, and gone when the log is closed."""

import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID, uuid4

import pytest

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records import known_logs
from cordwood.broker.records.known_logs import KnownLogs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.partition_table import PartitionTable
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store, StoreSetup
from fakes.without_collector import without_collector


class Entry:
    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.is_idle = True


class Bench:
    """A store, the entries of its logs, and a loop turned by hand."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.loop = EventLoop("data")
        self.logs: KnownLogs[Entry] = KnownLogs(
            PartitionTable(store), LogWatch(self.loop), self._make
        )

    @staticmethod
    def _make(log: PartitionLog, topic_id: UUID) -> Entry | None:
        return None if log.topic == "closed" else Entry(log)

    def named(self, topic: str, partition: int = 0) -> Entry | None:
        return self.logs.find((topic.encode(), partition), is_id=False)

    def identified(self, topic_id: UUID, partition: int = 0) -> Entry | None:
        return self.logs.find((topic_id.bytes, partition), is_id=True)

    def delete(self, topic: str) -> None:
        self.store.delete_topic(topic)
        self.loop.call_soon(lambda: None)
        self.loop._turn()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    store = Store([str(tmp_path)], StoreSetup(has_housekeeping=False, free_bytes_min=0))
    store.create_topic("t", partitions=2)
    made = Bench(store)
    yield made
    made.loop._close()
    store.close()


def test_a_log_has_the_same_entry_by_name_and_by_id(bench: Bench) -> None:
    by_name = bench.named("t")
    by_id = bench.identified(bench.store.topic("t").topic_id)

    assert by_name is not None
    assert by_id is by_name
    assert bench.logs.of(by_name.log) is by_name
    assert bench.logs.by_name == {(b"t", 0): by_name}


def test_partitions_have_entries_of_their_own(bench: Bench) -> None:
    assert bench.named("t", 0) is not bench.named("t", 1)


def test_what_does_not_exist_is_not_remembered(bench: Bench) -> None:
    assert bench.named("unknown") is None
    assert bench.named("t", 2) is None
    assert bench.identified(uuid4()) is None
    assert bench.logs.find((b"\xff", 0), is_id=False) is None
    assert len(bench.logs) == 0


def test_a_log_may_have_no_entry(bench: Bench) -> None:
    bench.store.create_topic("closed")

    assert bench.named("closed") is None
    assert len(bench.logs) == 0


def test_a_deleted_topic_is_forgotten_under_all_its_names(bench: Bench) -> None:
    first = bench.named("t")
    bench.identified(bench.store.topic("t").topic_id)

    bench.delete("t")
    assert len(bench.logs) == 0
    assert not bench.logs.by_name
    assert not bench.logs.by_id
    bench.store.create_topic("t")

    assert bench.named("t") not in (None, first)


def test_with_too_many_logs_only_idle_ones_are_forgotten(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(known_logs, "_LOGS_MAX", 2)
    busy, idle = bench.named("t", 0), bench.named("t", 1)
    assert busy is not None
    busy.is_idle = False
    bench.store.create_topic("another")

    assert bench.named("another") is not None
    assert bench.named("t", 0) is busy
    assert bench.named("t", 1) is not idle


def test_logs_that_come_and_go_leave_nothing_behind(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more logs than are remembered, each request may need the entry made again."""
    monkeypatch.setattr(known_logs, "_LOGS_MAX", 1)
    made: list[weakref.ref[Entry]] = []
    for _ in range(5):
        for partition in (0, 1):
            entry = bench.named("t", partition)
            assert entry is not None
            made.append(weakref.ref(entry))

    del entry
    gc.collect()
    alive = [found for reference in made if (found := reference()) is not None]

    assert alive == [bench.named("t", 1)]
    bench.delete("t")
    assert len(bench.logs) == 0


def test_a_deleted_log_is_freed_without_a_search_for_garbage(bench: Bench) -> None:
    first = bench.named("t")
    assert first is not None
    first.log.append(b"one")
    kept = weakref.ref(first.log)
    del first

    with without_collector():
        bench.delete("t")

        assert kept() is None
