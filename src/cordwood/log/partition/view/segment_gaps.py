"""Finds offsets that are lost between the segments of a log, without reading the log.

Where compaction has removed nothing, the offsets of a log have no gaps. So if the records of a
sealed segment end before the next segment begins, the file was cut, or segments behind it are
missing. An opening after a clean stop reads none of the sealed segments and does not notice.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from cordwood.errors import CorruptSegmentError, StorageError
from cordwood.format.small_files.segment_manifest import Hole
from cordwood.log.reading.log_source import LogSource, LogView
from cordwood.log.reading.missing_segments import missing_front
from cordwood.quantities import Offset
from cordwood.storage.recovery import Damage
from cordwood.storage.replacement.segment_files import walk_to_end
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.value_class import replace

# How often the segments are looked at again because they were deleted or replaced meanwhile.
_LOOKS_MAX: Final = 20

_Shape = tuple[Offset, int, Offset]  # base offset, size, and where the next segment begins


class SegmentGaps:
    """The gaps of one log. Any thread may ask.

    Of each sealed segment it reads a few kilobytes, from the last entry of the index on, and once:
    it remembers which segments were sound.
    """

    def __init__(self, source: LogSource, local_view: Callable[[], LogView]) -> None:
        self._source = source
        self._local_view = local_view
        self._sound: frozenset[_Shape] = frozenset()

    def find(self, known: Callable[[], Sequence[Damage]]) -> list[Damage]:
        """`known`, and the gaps that overlap none of it."""
        for _ in range(_LOOKS_MAX):
            view = self._local_view()
            before = list(known())
            try:
                found = self._look(view, before)
            except FileNotFoundError:
                self._source.refresh()  # retention or compaction removed a file meanwhile
                continue
            if not found:
                return before
            self._source.refresh()
            if _shapes(self._local_view()) == _shapes(view):
                return before + found
        raise StorageError(f"{self._source.name} changes too often to be looked at; try again")

    def _look(self, view: LogView, known: Sequence[Damage]) -> list[Damage]:
        floor = max(view.start, self._source.gaps_below)
        found: list[Damage] = []
        sound: set[_Shape] = set()
        for segment, shape in zip(view.segments, _shapes(view), strict=False):
            stop = shape[2]
            if stop <= floor:
                continue
            damage = None if shape in self._sound else _gap_before(segment, stop)
            if damage is None:
                sound.add(shape)
                continue
            first = Offset(max(damage.first_offset, floor))
            is_known = any(
                other.first_offset < damage.next_offset and first < other.next_offset
                for other in known
            )
            if first < damage.next_offset and not is_known:
                found.append(replace(damage, first_offset=first))
        self._sound = frozenset(sound)
        return found


def _shapes(view: LogView) -> list[_Shape]:
    """Of the sealed segments."""
    return [
        (one.base_offset, one.size, other.base_offset) for one, other in pairwise(view.segments)
    ]


def _gap_before(segment: ReadableSegment, stop: Offset) -> Damage | None:
    """Why the records of `segment` do not reach `stop`, where the next one begins."""
    try:
        reader = segment.reader()
        return _gap(segment, walk_to_end(reader, segment.hint(Offset(stop - 1))), stop)
    except CorruptSegmentError as error:
        return Damage(
            path=segment.name,
            position=error.position,
            first_offset=error.first_offset,
            next_offset=stop if error.next_offset is None else error.next_offset,
            reason=error.reason,
        )
    except FileNotFoundError:
        raise  # its owner has deleted it meanwhile
    except OSError as error:  # one bad sector does not take the log with it
        return Damage(
            path=segment.name,
            position=0,
            first_offset=segment.base_offset,
            next_offset=stop,
            reason=str(error),
        )


def _gap(segment: ReadableSegment, end: Offset, stop: Offset) -> Damage | None:
    if end >= stop:
        return None
    is_cut = segment.size > 0
    return Damage(
        path=segment.name,
        position=segment.size,
        first_offset=end,
        next_offset=stop,
        reason=(
            "the file ends before the records that should follow" if is_cut else "the file is empty"
        ),
    )


def hole_damages(
    holes: Sequence[Hole], segments: Sequence[ReadableSegment], name: str
) -> list[Damage]:
    """The `holes` of the log `name`, which has the given segments."""
    front = missing_front(holes, segments[0].base_offset)
    return [
        Damage(
            path=segments[0].name if hole is front else name,
            position=0,
            first_offset=hole.first,
            next_offset=hole.next,
            reason=(
                "the files before this one are missing"
                if hole is front
                else "log files are missing"
            ),
        )
        for hole in holes
    ]
