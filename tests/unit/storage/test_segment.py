"""One segment's files: appended to, indexed, frozen, sealed, cut, deleted."""

import errno

import pytest

from cordwood.format.file_names import FileKind
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import NO_TIMESTAMP, FilePosition, Offset, ProducerId, TimestampMs
from cordwood.storage.files import read_whole
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from fakes.client_batches import client_batch
from fakes.simulated_fs import ShortWrite, SimulatedFileSystem

BASE = Offset(100)
STEM = f"{100:020}"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def create(fs: SimulatedFileSystem, *, interval: int = 0, index_bytes: int = 10_000) -> Segment:
    return Segment.create(
        fs,
        "/",
        BASE,
        handles=HandleCache(),
        limits=SegmentLimits(index_bytes_max=index_bytes, index_interval_bytes=interval),
        now_ms=TimestampMs(1000),
    )


def append(segment: Segment, *timestamps: int, value: bytes = b"value") -> FilePosition:
    batch = client_batch(
        *[value] * len(timestamps), base_offset=segment.next_offset, timestamps=timestamps
    )
    position = FilePosition(segment.size)
    unplaced = UnplacedBatch(len(batch), len(timestamps), TimestampMs(max(timestamps)))
    segment.writer.append(batch, [unplaced], base_offset=segment.next_offset)
    return position


def offset_entries(segment: Segment) -> list[tuple[int, int]]:
    index = segment.indexes.offset
    return [index.entry(slot) for slot in range(index.count)]


def time_entries(segment: Segment) -> list[tuple[int, int]]:
    index = segment.indexes.time
    return [index.entry(slot) for slot in range(index.count)]


def test_a_new_segment_is_empty_and_has_its_files(fs: SimulatedFileSystem) -> None:
    segment = create(fs)

    assert (segment.size, segment.next_offset, segment.indexes.facts.record_count) == (0, BASE, 0)
    assert segment.is_active
    assert segment.largest_timestamp == (NO_TIMESTAMP, BASE)
    assert segment.indexes.facts.first_batch_timestamp == NO_TIMESTAMP
    assert [entry.name for entry in fs.list("/")] == [
        f"{STEM}.index",
        f"{STEM}.log",
        f"{STEM}.timeindex",
    ]


def test_appending_moves_size_next_offset_and_facts(fs: SimulatedFileSystem) -> None:
    segment = create(fs)

    first = append(segment, 50, 70)
    second = append(segment, 60)

    size = len(client_batch(b"value", b"value", timestamps=[50, 70]))
    assert (first, second) == (0, size)
    assert (segment.next_offset, segment.indexes.facts.record_count) == (103, 3)
    assert segment.size == fs.size(segment.name)
    assert segment.indexes.facts.first_batch_timestamp == 70
    assert segment.largest_timestamp == (70, 101)


def test_the_first_batch_is_never_indexed_and_the_others_as_the_interval_says(
    fs: SimulatedFileSystem,
) -> None:
    segment = create(fs, interval=0)
    positions = [append(segment, time) for time in (5, 3, 9, 9)]

    assert offset_entries(segment) == [
        (101, positions[1]),
        (102, positions[2]),
        (103, positions[3]),
    ]
    assert time_entries(segment) == [(5, 100), (9, 102)]


def test_a_wide_interval_leaves_batches_out(fs: SimulatedFileSystem) -> None:
    size = len(client_batch(b"value", timestamps=[5]))
    segment = create(fs, interval=2 * size)
    positions = [append(segment, 5) for _ in range(8)]

    assert offset_entries(segment) == [(103, positions[3]), (106, positions[6])]


def test_several_batches_in_one_write_are_indexed_one_by_one(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    data = [client_batch(b"v", base_offset=100 + n, timestamps=[n]) for n in range(4)]
    batches = [UnplacedBatch(len(data[n]), 1, TimestampMs(n)) for n in range(4)]
    before = len([call for call in fs.call_log if call[0] == "write_at"])

    segment.writer.append(b"".join(data), batches, base_offset=BASE)

    assert len([call for call in fs.call_log if call[0] == "write_at"]) == before + 1
    assert [entry[0] for entry in offset_entries(segment)] == [101, 102, 103]
    assert (segment.next_offset, segment.indexes.facts.record_count) == (104, 4)


def test_a_full_index_takes_no_more_entries_and_appending_goes_on(fs: SimulatedFileSystem) -> None:
    segment = create(fs, index_bytes=24)
    for time in range(6):
        append(segment, time)

    assert segment.indexes.is_full
    assert segment.indexes.offset.count <= 3
    assert segment.next_offset == 106


def test_a_frozen_segment_has_its_largest_time_in_the_index(fs: SimulatedFileSystem) -> None:
    segment = create(fs, interval=1000)
    for time in (5, 9, 7):
        append(segment, time)

    segment.freeze()

    assert time_entries(segment) == [(9, 101)]
    assert not segment.is_active


def test_a_segment_without_times_has_none_in_the_index(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    append(segment, -1)

    segment.freeze()
    segment.seal()

    assert segment.indexes.time.count == 0
    assert segment.largest_timestamp == (NO_TIMESTAMP, BASE)


def test_sealing_makes_everything_durable_and_trims_nothing(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    for time in (5, 9, 7):
        append(segment, time)
    facts = (segment.size, segment.next_offset, segment.largest_timestamp, offset_entries(segment))

    segment.freeze()
    segment.seal()

    assert (
        segment.size,
        segment.next_offset,
        segment.largest_timestamp,
        offset_entries(segment),
    ) == facts
    assert fs.size(f"/{STEM}.index") == 8 * len(facts[3])
    assert ("sync", f"/{STEM}.log") in fs.call_log
    assert ("sync", f"/{STEM}.index") in fs.call_log
    assert ("sync", f"/{STEM}.timeindex") in fs.call_log


def test_a_sealed_segment_opened_again_is_the_same(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    for time in (5, 9, 7):
        append(segment, time)
    segment.freeze()
    segment.seal()

    again = Segment.open_sealed(
        fs,
        "/",
        BASE,
        size=segment.size,
        next_offset=segment.next_offset,
        handles=HandleCache(),
        limits=SegmentLimits(index_bytes_max=1000, index_interval_bytes=0),
    )

    assert again.largest_timestamp == (9, 101)
    assert offset_entries(again) == offset_entries(segment)
    assert again.hint(Offset(102)) == segment.hint(Offset(102))


def test_opening_touches_no_file(fs: SimulatedFileSystem) -> None:
    before = fs.calls

    Segment.open_sealed(
        fs,
        "/",
        BASE,
        size=5,
        next_offset=Offset(101),
        handles=HandleCache(),
        limits=SegmentLimits(index_bytes_max=1000, index_interval_bytes=0),
    )

    assert fs.calls == before


def test_index_entries_reach_other_processes_in_pieces(fs: SimulatedFileSystem) -> None:
    segment = create(fs, index_bytes=100_000)
    for time in range(200):
        append(segment, time)
        segment.indexes.flush()

    assert fs.size(f"/{STEM}.index") == 8 * 128
    segment.indexes.flush(at_least=1)
    assert fs.size(f"/{STEM}.index") == 8 * 199


def test_a_failed_write_is_repaired_to_the_last_whole_batch(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    append(segment, 5)
    size, next_offset = segment.size, segment.next_offset
    fs.fail_next("write_at", ShortWrite(20), path_ends=".log")
    fs.fail_next("write_at", OSError(errno.EIO, "injected"), path_ends=".log")

    with pytest.raises(OSError, match="injected"):
        append(segment, 6)
    torn = fs.size(segment.name)
    segment.writer.repair()

    assert torn == size + 20
    assert (segment.size, segment.next_offset, fs.size(segment.name)) == (size, next_offset, size)
    assert segment.indexes.facts.record_count == 1
    append(segment, 7)
    assert segment.largest_timestamp == (7, 101)


def test_cutting_takes_log_and_indexes_back(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    positions = [append(segment, time) for time in (5, 9, 7, 8)]
    segment.indexes.transaction.append(
        AbortedTransaction(
            producer_id=ProducerId(1),
            first_offset=Offset(100),
            last_offset=Offset(103),
            last_stable_offset=Offset(104),
        )
    )

    segment.writer.truncate_to(positions[2], Offset(102))

    assert (segment.size, segment.next_offset) == (positions[2], 102)
    assert fs.size(segment.name) == positions[2]
    assert offset_entries(segment) == [(101, positions[1])]
    assert segment.indexes.transaction.count == 0
    assert append(segment, 3) == positions[2]


def test_cutting_everything_leaves_a_new_segment(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    append(segment, 5)

    segment.writer.truncate_to(FilePosition(0), BASE)

    assert (segment.size, segment.next_offset, segment.indexes.facts.record_count) == (0, BASE, 0)
    assert segment.indexes.facts.first_batch_timestamp == NO_TIMESTAMP
    assert segment.largest_timestamp == (NO_TIMESTAMP, BASE)


def test_deleting_renames_every_file_and_readers_keep_what_they_hold(
    fs: SimulatedFileSystem,
) -> None:
    segment = create(fs)
    append(segment, 5)
    segment.indexes.transaction.append(
        AbortedTransaction(
            producer_id=ProducerId(1),
            first_offset=Offset(100),
            last_offset=Offset(100),
            last_stable_offset=Offset(101),
        )
    )
    segment.freeze()
    segment.seal()
    file = segment.file()

    marked = segment.handles.mark_deleted()

    assert sorted(marked) == [
        f"/{STEM}.{kind}.deleted" for kind in ("index", "log", "timeindex", "txnindex")
    ]
    assert sorted(f"/{entry.name}" for entry in fs.list("/")) == sorted(marked)
    assert len(file.read_at(0, 1000)) == segment.size


def test_deleting_a_segment_that_lost_its_indexes_is_no_error(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    fs.remove(f"/{STEM}.index")

    assert len(segment.handles.mark_deleted()) == 2


def test_closing_flushes_nothing_and_reads_nothing(fs: SimulatedFileSystem) -> None:
    segment = create(fs)
    for time in range(5):
        append(segment, time)
    before = fs.calls

    segment.close()

    assert fs.calls == before
    assert read_whole(fs, f"/{STEM}.index", limit=100) == b""


def test_the_paths_are_those_of_its_base_offset(fs: SimulatedFileSystem) -> None:
    segment = create(fs)

    assert segment.path(FileKind.LOG) == f"/{STEM}.log"
    assert segment.names.path(FileKind.TXNINDEX, ".deleted") == f"/{STEM}.txnindex.deleted"
