"""Finding the records of a key, with and without key indexes: the same answers."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cordwood
from cordwood.errors import LogClosedError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import Offset
from cordwood.storage.files import read_whole, write_all
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC, log_of, new_log, open_store

DIRECTORY = "/data/events-0"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def filled(
    fs: SimulatedFileSystem, *, segments: int = 4, config: dict[str, object] | None = None
) -> PartitionLog:
    """Segments of which each holds its own key, all hold `common`; the last one is active."""
    log = new_log(fs, {"key.index": True, **(config or {})})[1]
    for number in range(segments):
        log.append_many([(b"own %d" % number, b"%d" % number), (b"common", b"%d" % number)])
        log.append(b"keyless")
        log.append(b"last %d" % number, key=b"common")
        if number < segments - 1:
            log.roll()
            log.sync()
    return log


def index_files(fs: SimulatedFileSystem) -> list[str]:
    return [entry.name for entry in fs.list(DIRECTORY) if entry.name.endswith(".keyindex")]


def log_reads(fs: SimulatedFileSystem, since: int) -> set[str]:
    return {path for what, path in fs.call_log[since:] if path.endswith(".log") and "read" in what}


def test_every_sealed_segment_gets_an_index_and_the_active_one_none(
    fs: SimulatedFileSystem,
) -> None:
    log = filled(fs)

    built = log.upkeep.index_keys()

    assert built == 3
    assert index_files(fs) == [f"{base:020d}.keyindex" for base in (0, 4, 8)]
    assert log.upkeep.index_keys() == 0


def test_find_and_history_answer_the_same_with_and_without_indexes(
    fs: SimulatedFileSystem,
) -> None:
    log = filled(fs)
    keys = [b"own 0", b"own 2", b"own 3", b"common", b"nobody"]
    before = [(log.find(key), list(log.history(key))) for key in keys]

    log.upkeep.index_keys()

    assert [(log.find(key), list(log.history(key))) for key in keys] == before
    found = log.find(b"common")
    assert found is not None
    assert found.value == b"last 3"
    assert [record.offset for record in log.history(b"common")] == [
        1, 3, 5, 7, 9, 11, 13, 15
    ]  # fmt: skip


def test_a_lookup_reads_only_the_segments_that_hold_the_key(fs: SimulatedFileSystem) -> None:
    log = filled(fs, segments=20)
    log.upkeep.index_keys()
    log.find(b"nobody")  # remembers the keys of the active segment
    calls = len(fs.call_log)

    found = log.find(b"own 7")

    read = log_reads(fs, calls)
    assert found is not None
    assert found.value == b"7"
    assert read - {log.segments()[-1].path} == {f"{DIRECTORY}/{28:020d}.log"}


def test_the_active_segment_is_remembered_and_grows_on(fs: SimulatedFileSystem) -> None:
    log = filled(fs)
    log.find(b"common")

    log.append(b"newest", key=b"own 0")

    found = log.find(b"own 0")
    assert found is not None
    assert found.value == b"newest"
    assert [record.value for record in log.history(b"own 0")] == [b"0", b"newest"]


def test_what_was_truncated_is_forgotten(fs: SimulatedFileSystem) -> None:
    log = filled(fs)
    log.upkeep.index_keys()
    log.append(b"cut off", key=b"own 3")
    assert log.find(b"own 3") is not None
    log.truncation.truncate_to(16)
    log.append(b"instead", key=b"other 3")

    assert [record.value for record in log.history(b"own 3")] == [b"3"]
    assert [record.value for record in log.history(b"other 3")] == [b"instead"]


def test_a_truncation_is_noticed_if_the_last_batch_is_the_same_again() -> None:
    fs = SimulatedFileSystem(clock=ManualClock())
    log = new_log(fs, {"key.index": True})[1]
    log.append(b"v", key=b"a")
    log.append(b"v", key=b"z")
    assert log.find(b"b") is None

    log.truncation.truncate_to(Offset(0))
    log.append(b"v", key=b"b")
    log.append(b"v", key=b"z")

    assert [record.offset for record in log.history(b"b")] == [0]
    assert list(log.history(b"a")) == []


def test_a_truncation_into_a_sealed_segment_removes_its_index(fs: SimulatedFileSystem) -> None:
    log = filled(fs)
    log.upkeep.index_keys()

    log.truncation.truncate_to(9)

    assert index_files(fs) == [f"{base:020d}.keyindex" for base in (0, 4)]
    assert [record.offset for record in log.history(b"common")] == [1, 3, 5, 7]


@pytest.mark.parametrize("what", ["removed", "emptied", "rotten", "of another size"])
def test_an_index_that_is_lost_or_damaged_is_made_again(fs: SimulatedFileSystem, what: str) -> None:
    log = filled(fs)
    log.upkeep.index_keys()
    path = f"{DIRECTORY}/{4:020d}.keyindex"
    content = bytearray(read_whole(fs, path, limit=1 << 20))
    file = fs.open_write(path)
    if what == "removed":
        fs.remove(path)
    elif what == "emptied":
        file.truncate_to(0)
    elif what == "rotten":
        content[40] ^= 1
        write_all(file, 0, content)
    else:
        stale = read_whole(fs, f"{DIRECTORY}/{8:020d}.keyindex", limit=1 << 20)
        write_all(file, 0, stale[:8] + bytes(8) + stale[16:])
    log.close()
    again = log_of(open_store(fs.kill()))

    assert [record.offset for record in again.history(b"common")] == [1, 3, 5, 7, 9, 11, 13, 15]
    again.upkeep.index_keys()
    assert again.upkeep.index_keys() == 0
    assert [record.offset for record in again.history(b"own 1")] == [4]


def test_turning_the_index_on_builds_what_is_missing(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, {})
    for number in range(3):
        log.append(b"v", key=b"%d" % number)
        log.roll()
    store.maintain()
    assert index_files(fs) == []

    store.alter_topic(TOPIC, config={"key.index": "true"})
    store.maintain()

    assert len(index_files(fs)) == 3


def test_indexes_go_with_their_segments(fs: SimulatedFileSystem) -> None:
    log = filled(fs, config={"file.delete.delay.ms": 0})
    log.upkeep.index_keys()

    log.delete_before(8)

    assert index_files(fs) == [f"{8:020d}.keyindex"]
    assert log.find(b"own 0") is None
    assert [record.offset for record in log.history(b"common")] == [9, 11, 13, 15]


def test_compressed_batches_are_indexed_too(fs: SimulatedFileSystem) -> None:
    log = filled(fs, config={"compression.type": "zstd"})
    log.upkeep.index_keys()

    assert [record.offset for record in log.history(b"common")] == [1, 3, 5, 7, 9, 11, 13, 15]


def test_a_power_cut_may_spoil_an_index_and_nothing_else(fs: SimulatedFileSystem) -> None:
    log = filled(fs)
    log.upkeep.index_keys()

    for seed in range(20):
        again = log_of(open_store(fs.crash(random.Random(seed))))

        assert [r.offset for r in again.history(b"common")] == [1, 3, 5, 7, 9, 11, 13, 15]
        again.upkeep.index_keys()
        assert [r.offset for r in again.history(b"common")] == [1, 3, 5, 7, 9, 11, 13, 15]


def test_another_process_uses_the_indexes(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("t", config={"key.index": True})
        for number in range(5):
            topic.append(b"%d" % number, key=b"own %d" % number)
            topic.append(b"%d" % number, key=b"common")
            topic.partition(0).roll()
        store.maintain()
        assert len(list((tmp_path / "data" / "t-0").glob("*.keyindex"))) == 5
        with cordwood.open(tmp_path / "data", read_only=True) as reading:
            log = reading.topic("t").partition(0)

            assert [record.value for record in log.history(b"common")] == [
                b"0", b"1", b"2", b"3", b"4"
            ]  # fmt: skip
            topic.append(b"newest", key=b"own 1")
            found = log.find(b"own 1")
            assert found is not None
            assert found.value == b"newest"


def test_keys_are_bytes_and_the_log_is_open(fs: SimulatedFileSystem) -> None:
    log = filled(fs)

    with pytest.raises(TypeError):
        log.history("common")  # type: ignore[arg-type]
    log.close()
    with pytest.raises(LogClosedError):
        log.history(b"common")


@given(
    steps=st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.binary(max_size=1)),
            st.tuples(st.sampled_from(["roll", "index", "find", "delete", "cut"]), st.binary()),
        ),
        max_size=40,
    )
)
def test_the_history_of_a_key_is_what_a_scan_finds(steps: list[tuple[str, bytes]]) -> None:
    log = new_log(SimulatedFileSystem(clock=ManualClock()), {"key.index": True})[1]
    for what, key in steps:
        if what == "append":
            log.append(b"v", key=key)
        elif what == "roll":
            log.roll()
        elif what == "index":
            log.sync()
            log.upkeep.index_keys()
        elif what == "delete":
            log.delete_before((log.start_offset + log.end_offset) // 2)
        elif what == "cut":
            log.truncation.truncate_to((log.start_offset + log.end_offset + 1) // 2)
        else:
            log.find(key)

    records = list(log.read())
    for key in {record.key or b"" for record in records} | {b"nobody"}:
        mine = [record for record in records if record.key == key]
        assert list(log.history(key)) == mine
        assert log.find(key) == (mine[-1] if mine else None)
