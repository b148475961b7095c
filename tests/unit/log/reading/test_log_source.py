"""The port of a reader: a view checks ranges, and any object with the port's members is a log."""

from dataclasses import dataclass, field

import pytest

from cordwood.errors import LogClosedError, OffsetOutOfRangeError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.segment_manifest import Hole
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import LogView, has_changed
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from fakes.numbered_log import value


@dataclass
class FrozenSource:
    """A log that never changes: one view."""

    seen: LogView
    name: str = "frozen-0"
    is_closed: bool = False
    allows_gaps: bool = False
    gaps_below: Offset = Offset(0)
    holes: tuple[Hole, ...] = ()
    compacted_up_to: Offset | None = None
    refreshed: list[str] = field(default_factory=list)

    def view(self) -> LogView:
        return self.seen

    @property
    def local_start_offset(self) -> Offset:
        return self.seen.start

    @property
    def high_watermark(self) -> Offset:
        return self.seen.high_watermark

    @property
    def end_offset(self) -> Offset:
        return self.seen.high_watermark

    @property
    def last_stable_offset(self) -> Offset:
        return self.seen.high_watermark

    def wait_beyond(self, offset: Offset, timeout_s: float | None) -> bool:
        return self.seen.high_watermark > offset

    def replacements(self, *, look: bool) -> int:
        return 0

    def refresh(self) -> None:
        self.refreshed.append(self.name)

    def readable_bytes(self, segment: ReadableSegment) -> int:
        return segment.size

    def largest_timestamp(self, segment: ReadableSegment) -> tuple[TimestampMs, Offset]:
        return segment.largest_timestamp

    def key_memory(self, view: LogView) -> int | None:
        return None

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        return []


@pytest.fixture
def source(log: PartitionLog) -> FrozenSource:
    """The middle of a log: offsets 3 to 11."""
    return FrozenSource(log.view()._replace(start=Offset(3), high_watermark=Offset(11)))


def test_a_reader_needs_nothing_but_a_source(source: FrozenSource) -> None:
    reader = LogReader("frozen", 0, source)

    assert reader.name == "frozen-0"
    assert (reader.start_offset, reader.high_watermark, reader.end_offset) == (3, 11, 11)
    assert [record.value for record in reader.read()] == [value(n) for n in range(3, 11)]
    assert [record.offset for record in reader.follow(9)] == [9, 10]
    assert sum(batch.num_rows for batch in reader.scan(5)) == 6


def test_a_closed_log_cannot_be_read(source: FrozenSource) -> None:
    source.is_closed = True

    with pytest.raises(LogClosedError, match="frozen-0"):
        LogReader("frozen", 0, source).read()


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (None, None, (3, 11)),
        (5, None, (5, 11)),
        (5, 7, (5, 7)),
        (5, 99, (5, 11)),
        (7, 5, (7, 7)),
        (11, None, (11, 11)),
    ],
)
def test_a_range_is_cut_off_at_the_high_watermark(
    start: int | None, stop: int | None, expected: tuple[int, int]
) -> None:
    view = LogView(SegmentList([]), Offset(3), Offset(11))

    assert view.readable(start, stop) == expected


@pytest.mark.parametrize("start", [2, 12, -1])
def test_a_range_cannot_begin_outside_of_the_view(start: int) -> None:
    view = LogView(SegmentList([]), Offset(3), Offset(11))

    with pytest.raises(OffsetOutOfRangeError) as caught:
        view.readable(start, None)

    assert (caught.value.requested, caught.value.start, caught.value.end) == (start, 3, 11)


def test_a_log_has_changed_when_it_has_other_segments(source: FrozenSource) -> None:
    old = source.view()
    grown = old._replace(high_watermark=Offset(12))
    rolled = old._replace(segments=old.segments.behind(1))

    assert not has_changed(source, old)
    assert not has_changed(source, grown)
    assert has_changed(source, rolled)
    assert len(source.refreshed) == 3
