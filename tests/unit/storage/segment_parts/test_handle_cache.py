"""How many sealed segments may be open at once."""

from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem


class Handle:
    def __init__(self) -> None:
        self.released = 0

    def release(self) -> None:
        self.released += 1


def test_nothing_is_released_up_to_the_limit() -> None:
    cache = HandleCache(3)
    handles = [Handle() for _ in range(3)]

    for handle in handles * 2:
        cache.touch(handle)

    assert len(cache) == 3
    assert [handle.released for handle in handles] == [0, 0, 0]


def test_past_the_limit_the_one_not_used_for_longest_goes() -> None:
    cache = HandleCache(2)
    first, second, third = (Handle() for _ in range(3))
    cache.touch(first)
    cache.touch(second)
    cache.touch(first)

    cache.touch(third)

    assert [h.released for h in (first, second, third)] == [0, 1, 0]
    assert len(cache) == 2


def test_a_forgotten_one_is_not_released_and_makes_room() -> None:
    cache = HandleCache(1)
    first, second = Handle(), Handle()
    cache.touch(first)
    cache.forget(first)
    cache.forget(first)

    cache.touch(second)

    assert first.released == 0
    assert len(cache) == 1


def test_a_released_segment_is_opened_again_when_read() -> None:
    fs = SimulatedFileSystem()
    handles = HandleCache(1)
    limits = SegmentLimits(index_bytes_max=1000, index_interval_bytes=0)
    segments = []
    for base in (0, 1):
        segment = Segment.create(
            fs, "/", Offset(base), handles=handles, limits=limits, now_ms=TimestampMs(0)
        )
        batch = client_batch(b"x", base_offset=base)
        segment.writer.append(
            batch, [UnplacedBatch(len(batch), 1, TimestampMs(5))], base_offset=Offset(base)
        )
        segment.freeze()
        segment.seal()
        segments.append(segment)
    held = segments[0].file()
    segments[1].file()

    again = segments[0].file()

    assert again is not held
    assert held.size() == again.size(), "whoever holds the old one goes on reading"
    assert len(handles) == 1
