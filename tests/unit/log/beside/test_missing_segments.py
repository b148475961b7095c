"""A log file that somebody removed is damage, for the owner and for every reader."""

from __future__ import annotations

from itertools import pairwise

import pytest

from cordwood.errors import CorruptSegmentError
from cordwood.log.inspection.segment_check import check_segment
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from cordwood.storage.files import FileSystem, write_all
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC, log_of, new_log, open_store

DIRECTORY = f"{DATA}/{TOPIC}-0"
DELETING: dict[str, object] = {"segment.records": "5", "retention.ms": "-1"}
COMPACTED: dict[str, object] = {
    "segment.records": "5",
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0,
    "file.delete.delay.ms": 0,
    "internal.segment.bytes": 700,
}


def append(log: PartitionLog, count: int, *, keys: int = 1000) -> None:
    for _ in range(count):
        number = log.end_offset
        log.append(b"v%d" % number, key=b"k%d" % (number % keys))


def make(kind: str) -> tuple[SimulatedFileSystem, Store]:
    """A closed store, and the bases of its segments."""
    fs = SimulatedFileSystem(clock=ManualClock())
    store, log = new_log(fs, DELETING if kind == "delete" else COMPACTED, clock=ManualClock())
    append(log, 20, keys=7)
    if kind == "compacted":
        store.compact(TOPIC, force=True)
        append(log, 20, keys=7)
        store.compact(TOPIC, force=True)
    append(log, 22)
    return fs, store


def remove(fs: SimulatedFileSystem, base: int, *, only_log: bool) -> None:
    for name in list(fs.names(DIRECTORY)):
        if name.startswith(f"{base:020}.") and (name.endswith(".log") or not only_log):
            fs.remove(f"{DIRECTORY}/{name}")


def open_reader(fs: FileSystem) -> ReadOnlyStore:
    return ReadOnlyStore([DATA], fs=fs, clock=ManualClock(), defaults=TopicConfig())


def read(log: LogReader) -> tuple[set[int], list[tuple[int, int]]]:
    """Everything that can be read, and the damaged offsets between."""
    found: set[int] = set()
    damaged: list[tuple[int, int]] = []
    at: int | None = None
    while True:
        try:
            for record in log.read(at):
                found.add(record.offset)
            return found, damaged
        except CorruptSegmentError as error:
            assert error.next_offset is not None
            damaged.append((error.first_offset, error.next_offset))
            at = error.next_offset


@pytest.mark.parametrize("only_log", [True, False])
@pytest.mark.parametrize("kind", ["delete", "compact", "compacted"])
def test_each_missing_segment_is_reported_to_the_owner_and_to_readers(
    kind: str, only_log: bool
) -> None:
    fs, store = make(kind)
    segments = list(log_of(store).state.segments)
    whole, _ = read(log_of(store))
    store.close()
    assert len(segments) > 6
    for segment, following in pairwise(segments):
        lost = fs.kill()
        base, end = segment.base_offset, following.base_offset
        expected = {offset for offset in whole if not base <= offset < end}
        remove(lost, base, only_log=only_log)

        with open_reader(lost) as beside:
            log = beside.topic(TOPIC).partition(0)
            found, damaged = read(log)
            checks = [check_segment(log, other.base_offset) for other in log.view().segments]
            problems = [p for check in checks if check is not None for p in check.problems]
            reported = [damage.next_offset for damage in beside.damages()]

        assert found == expected, base
        assert [stop for _, stop in damaged] == [end], (base, damaged)
        assert any(problem.next_offset == end for problem in problems), base
        assert reported == [end], base
        for _ in range(2):
            owner = open_store(lost)
            found, damaged = read(log_of(owner))
            assert found == expected, base
            assert [stop for _, stop in damaged] == [end], (base, damaged)
            assert [damage.next_offset for damage in owner.damages()] == [end], base
            owner.close()


@pytest.mark.parametrize("kind", ["delete", "compact", "compacted"])
def test_a_segment_that_is_missing_after_a_crash_is_listed(kind: str) -> None:
    fs, store = make(kind)
    segments = list(log_of(store).state.segments)
    for segment, following in list(pairwise(segments))[1:]:
        lost = fs.kill()
        remove(lost, segment.base_offset, only_log=True)

        owner = open_store(lost)

        listed = [damage.next_offset for damage in owner.damages()]
        assert listed == [following.base_offset], segment.base_offset
        owner.close()


@pytest.mark.parametrize("kind", ["delete", "compact"])
@pytest.mark.parametrize("left", ["nothing", "half"])
def test_a_sealed_file_that_was_cut_is_listed(kind: str, left: str) -> None:
    fs, store = make(kind)
    segments = log_of(store).state.segments
    segment, end = segments[2], segments[3].base_offset
    store.close()
    file = fs.open_write(segment.name)
    file.truncate_to(0 if left == "nothing" else segment.size // 2)
    file.close()

    with open_reader(fs) as beside:
        assert [damage.next_offset for damage in beside.damages()] == [end]
    owner = open_store(fs)

    (damage,) = owner.damages()
    assert damage.path == segment.name
    assert damage.next_offset == end
    assert read(log_of(owner))[1] == [(damage.first_offset, end)]
    owner.close()


@pytest.mark.parametrize("only_log", [True, False])
@pytest.mark.parametrize("kind", ["delete", "compact", "compacted"])
def test_a_missing_front_is_reported_at_each_opening_until_the_start_moves(
    kind: str, only_log: bool
) -> None:
    fs, store = make(kind)
    end = log_of(store).state.segments[1].base_offset
    store.close()
    remove(fs, 0, only_log=only_log)
    for _ in range(3):
        owner = open_store(fs)
        assert [(d.first_offset, d.next_offset) for d in owner.damages()] == [(0, end)]
        assert read(log_of(owner))[1] == [(0, end)]
        append(log_of(owner), 1)
        owner.close()
        with open_reader(fs) as beside:
            assert read(beside.topic(TOPIC).partition(0))[1] == [(0, end)]

    owner = open_store(fs)
    log_of(owner).delete_before(end)
    assert read(log_of(owner))[1] == []
    owner.close()

    with open_reader(fs) as beside:
        assert read(beside.topic(TOPIC).partition(0))[1] == []
    owner = open_store(fs)
    assert owner.damages() == []
    owner.close()


def test_a_log_without_files_is_reported_at_each_opening() -> None:
    fs, store = make("delete")
    end = log_of(store).end_offset
    bases = [segment.base_offset for segment in log_of(store).state.segments]
    store.close()
    for base in bases:
        remove(fs, base, only_log=False)
    for _ in range(2):
        owner = open_store(fs)
        assert [(d.first_offset, d.next_offset) for d in owner.damages()] == [(0, end)]
        assert read(log_of(owner)) == (set(), [(0, end)])
        owner.close()


@pytest.mark.parametrize("cut", [0, 3, 5])
def test_a_log_with_a_missing_front_can_be_truncated_there(cut: int) -> None:
    fs, store = make("delete")
    store.close()
    remove(fs, 0, only_log=True)
    owner = open_store(fs)
    log = log_of(owner)

    log.truncation.truncate_to(cut)
    append(log, 12)

    found = read(log)
    assert found[0] == set(range(cut, cut + 12))
    owner.close()
    owner = open_store(fs)
    assert read(log_of(owner)) == found
    owner.close()


@pytest.mark.parametrize("kind", ["delete", "compact", "compacted"])
def test_nothing_is_missing_after_retention_compaction_truncation_and_restart(kind: str) -> None:
    fs, store = make(kind)
    log = log_of(store)

    def check() -> None:
        with open_reader(fs) as beside:
            assert read(beside.topic(TOPIC).partition(0))[1] == []
            assert beside.damages() == []
        after = open_store(fs.kill())
        assert after.damages() == []
        assert read(log_of(after))[1] == []

    check()
    log.delete_before(log.state.segments[2].base_offset + 1)
    check()
    append(log, 10, keys=3)
    store.maintain()
    check()
    if kind != "delete":
        store.compact(TOPIC, force=True)
        check()
    for cut in (log.end_offset - 7, log.state.segments[1].base_offset + 1, log.start_offset):
        log.truncation.truncate_to(cut)
        check()
        append(log, 12)
        check()
    log.truncation.truncate_fully_and_start_at(5)
    append(log, 90)
    check()


def test_a_lost_segment_stays_lost_after_the_next_compaction() -> None:
    fs, store = make("compacted")
    segments = log_of(store).state.segments
    base, end = segments[1].base_offset, segments[2].base_offset
    store.close()
    remove(fs, base, only_log=False)
    store = open_store(fs)
    append(log_of(store), 20, keys=5)

    store.compact(TOPIC, force=True)

    assert any(stop >= end for _, stop in read(log_of(store))[1])
    with open_reader(fs) as beside:
        assert any(stop >= end for _, stop in read(beside.topic(TOPIC).partition(0))[1])
    store.close()
    assert open_store(fs).damages() != []


def test_a_damaged_manifest_hides_nothing_and_invents_no_damage() -> None:
    fs, store = make("compacted")
    whole, _ = read(log_of(store))
    store.close()
    file = fs.open_write(f"{DIRECTORY}/segment-manifest")
    file.write_at(40, b"!")

    with open_reader(fs) as beside:
        assert read(beside.topic(TOPIC).partition(0)) == (whole, [])
    owner = open_store(fs)
    assert owner.damages() == []
    assert read(log_of(owner)) == (whole, [])


def merge(fs: SimulatedFileSystem, base: int, following: int) -> None:
    """Replace two segments by one with the records of both, as Kafka's cleaner does."""
    added = fs.open_read(f"{DIRECTORY}/{following:020}.log")
    file = fs.open_write(f"{DIRECTORY}/{base:020}.log")
    write_all(file, file.size(), added.read_at(0, added.size()))
    for opened in (file, added):
        opened.close()
    remove(fs, following, only_log=False)
    for name in list(fs.names(DIRECTORY)):
        if name.startswith(f"{base:020}.") and not name.endswith(".log"):
            fs.remove(f"{DIRECTORY}/{name}")


def test_segments_that_kafka_has_merged_are_not_missing() -> None:
    fs = SimulatedFileSystem(clock=ManualClock())
    store, log = new_log(fs, COMPACTED, clock=ManualClock())
    append(log, 30)
    for number in range(2, 30, 5):
        log.append(b"newer", key=b"k%d" % number)
    store.compact(TOPIC, force=True)
    whole, _ = read(log)
    first, second, third = (segment.base_offset for segment in list(log.state.segments)[:3])
    store.close()
    merge(fs, first, second)

    with open_reader(fs) as beside:
        assert beside.topic(TOPIC).partition(0).source.gaps_below > third
        assert read(beside.topic(TOPIC).partition(0)) == (whole, [])
    owner = open_store(fs)
    assert owner.damages() == []
    assert read(log_of(owner)) == (whole, [])
    owner.close()
