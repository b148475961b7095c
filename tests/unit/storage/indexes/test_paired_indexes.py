"""Both indexes of a segment together: a walk that resumes at an entry loses no timestamp."""

from random import Random

import pytest

from cordwood.format.file_names import FileKind
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import FilePosition, Offset, TimestampMs
from cordwood.storage.files import replace_file
from cordwood.storage.recovery import rebuild_indexes, walk_segment
from cordwood.storage.replacement.segment_rewrite import SegmentRewrite
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem

BASE = Offset(100)
INTERVAL = 150  # a batch has about 70 bytes


class Written:
    """A segment with batches of one record, written in groups, and their timestamps."""

    def __init__(self, *, index_bytes: int = 10_000) -> None:
        self.fs = SimulatedFileSystem()
        self.limits = SegmentLimits(index_bytes_max=index_bytes, index_interval_bytes=INTERVAL)
        self.times: list[int] = []
        self.segment = Segment.create(
            self.fs,
            "/",
            BASE,
            handles=HandleCache(),
            limits=self.limits,
            now_ms=TimestampMs(0),
        )

    def append(self, *times: int) -> None:
        start = self.segment.next_offset
        data = [
            client_batch(b"v", base_offset=start + n, timestamps=[time])
            for n, time in enumerate(times)
        ]
        batches = [
            UnplacedBatch(len(batch), 1, TimestampMs(time))
            for batch, time in zip(data, times, strict=True)
        ]
        self.segment.writer.append(b"".join(data), batches, base_offset=start)
        self.times += times

    def check(self) -> None:
        """For each offset entry, the time entries up to it name the largest time up to it."""
        offset_index, time_index = self.segment.indexes.offset, self.segment.indexes.time
        times = [time_index.entry(slot) for slot in range(time_index.count)]
        for slot in range(offset_index.count):
            offset, _ = offset_index.entry(slot)
            named = max((time for time, at in times if at <= offset), default=None)
            assert named == max(self.times[: offset + 1 - BASE]), (offset, times, self.times)


def written(seed: int, *, index_bytes: int = 10_000) -> Written:
    random = Random(seed)
    made = Written(index_bytes=index_bytes)
    for _ in range(random.randrange(1, 12)):
        made.append(*(random.randrange(1000) for _ in range(random.choice((1, 1, 5, 60)))))
    return made


@pytest.mark.parametrize("seed", range(20))
def test_entries_of_grouped_appends_name_the_largest_time_before_them(seed: int) -> None:
    written(seed).check()


@pytest.mark.parametrize("index_bytes", [24, 60, 10_000])
@pytest.mark.parametrize("seed", range(5))
def test_entries_that_a_walk_makes_do_too_even_if_there_is_no_room_for_all(
    seed: int, index_bytes: int
) -> None:
    made = written(seed, index_bytes=index_bytes)

    walk_segment(made.segment, Offset(0), lambda _decoder, _first, _stop: None)

    made.check()


@pytest.mark.parametrize("index_bytes", [24, 60, 10_000])
@pytest.mark.parametrize("seed", range(5))
def test_a_walk_from_anywhere_finds_the_largest_time(seed: int, index_bytes: int) -> None:
    made = written(seed, index_bytes=index_bytes)
    times = made.times

    for trusted in range(BASE, BASE + len(times) + 1, 7):
        walk_segment(made.segment, Offset(trusted), lambda _decoder, _first, _stop: None)

        made.check()
        largest = BASE + times.index(max(times))
        assert made.segment.largest_timestamp == (max(times), largest), trusted


@pytest.mark.parametrize("seed", range(5))
def test_a_cut_anywhere_leaves_the_largest_time_of_the_rest(seed: int) -> None:
    made = written(seed)
    segment, times = made.segment, made.times

    for count in range(len(times) - 1, 0, -3):
        position = segment.reader().locate(Offset(BASE + count), segment.hint(Offset(BASE + count)))
        assert position is not None
        segment.writer.truncate_to(FilePosition(position), Offset(BASE + count))
        walk_segment(segment, segment.next_offset, lambda _decoder, _first, _stop: None)

        made.times = times[:count]
        made.check()
        assert segment.largest_timestamp[0] == max(times[:count])


@pytest.mark.parametrize("index_bytes", [24, 60])
def test_a_rewritten_segment_with_full_indexes_loses_no_time_when_it_is_walked_again(
    index_bytes: int,
) -> None:
    made = Written(index_bytes=index_bytes)
    times = [5, 900, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 800, 19, 20, 21]
    data = b"".join(
        client_batch(b"v", base_offset=BASE + n, timestamps=[time]) for n, time in enumerate(times)
    )
    rewrite = SegmentRewrite(made.fs, "/", BASE, limits=made.limits)
    rewrite.append(data)
    rewrite.finish(modified_ms=0)
    for kind in rewrite.kinds:
        made.fs.rename(rewrite.path(kind), made.segment.path(kind))
    again = Segment.open_sealed(
        made.fs,
        "/",
        BASE,
        size=len(data),
        next_offset=Offset(BASE + len(times)),
        handles=HandleCache(),
        limits=made.limits,
        is_last=True,
    )
    again.activate(now_ms=TimestampMs(0))

    walk_segment(again, again.next_offset, lambda _decoder, _first, _stop: None)

    assert again.largest_timestamp == (900, 101)


def test_a_lowered_limit_leaves_the_indexes_full_and_the_segment_can_be_frozen() -> None:
    made = written(3)
    made.append(2000, 1)
    entries = made.segment.indexes.time.count
    made.segment.indexes.sync()
    made.limits = SegmentLimits(index_bytes_max=24, index_interval_bytes=INTERVAL)
    again = Segment.open_sealed(
        made.fs,
        "/",
        BASE,
        size=made.segment.size,
        next_offset=made.segment.next_offset,
        handles=HandleCache(),
        limits=made.limits,
        is_last=True,
    )
    again.activate(now_ms=TimestampMs(0))

    walk_segment(again, again.next_offset, lambda _decoder, _first, _stop: None)
    assert again.indexes.is_full
    again.freeze()
    again.seal()

    assert entries > 2
    assert again.indexes.time.last_entry[0] == 2000


@pytest.mark.parametrize("kind", [FileKind.INDEX, FileKind.TIMEINDEX])
def test_an_index_beyond_all_measure_is_made_again(
    kind: FileKind, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = written(2)
    made.segment.freeze()
    made.segment.seal()
    expected = [
        (made.segment.indexes.offset.count, made.segment.indexes.offset.last_offset),
        (made.segment.indexes.time.count, made.segment.indexes.time.last_entry),
    ]
    monkeypatch.setattr("cordwood.storage.indexes.entry_file._READ_BYTES_MAX", 9_000)
    replace_file(made.fs, made.segment.path(kind), bytes(12_000))
    made.segment.handles.release()

    rebuild_indexes(made.segment)

    assert expected == [
        (made.segment.indexes.offset.count, made.segment.indexes.offset.last_offset),
        (made.segment.indexes.time.count, made.segment.indexes.time.last_entry),
    ]
