"""The segments of a log as users see them."""

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.quantities import INT64_MAX
from fakes.numbered_log import SIZE


def test_segments_say_what_they_hold(log: PartitionLog) -> None:
    segments = log.segments()

    assert [s.base_offset for s in segments] == [0, 4, 8, 12, 16]
    assert [s.next_offset for s in segments] == [4, 8, 12, 16, 20]
    assert sum(s.size_bytes for s in segments) == log.size_bytes == 20 * SIZE
    assert log.offset_for_time(INT64_MAX) is None
