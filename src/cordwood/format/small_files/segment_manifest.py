"""The `segment-manifest` file of a compacted partition: which segments it must have.

    cordwood-segments 1 <generation> <crc32c>
    {"end": 4000, "segments": [0, 900], "replaced": [2000, 3000], "replacing": [2000]}

Offsets that are missing below `end` were removed by compaction. From `end` on the offsets of a log
have no gaps, so a missing segment shows in the records. Below it only this list can tell.

The file is written before each replacement of segments is announced, and lists every segment that
begins below `end`. It does not say whether the replacement was carried out: a directory has either
all segments of `replaced` or all of `replacing`. Segments below the start of the log do not count:
retention deletes them without a word here. A partition that was never compacted has no such file,
and neither has a directory that Kafka wrote.

If Kafka owned the directory meanwhile, it may have merged segments without changing this file. A
segment is not missing if the records of the one before it reach past its base offset.
"""

import json
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from cordwood.errors import FormatError
from cordwood.format.small_files.checked_document import (
    CheckedDocument,
    decode_document,
    encode_document,
)
from cordwood.quantities import Offset
from cordwood.value_class import dataclass, replace

_NAME: Final = "cordwood-segments"


class Hole(NamedTuple):
    """Offsets [first, next) of segments that are missing, though nobody may have removed them."""

    first: Offset
    next: Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentManifest:
    """Base offsets, in order. `segments` are those outside of the last replacement."""

    generation: int
    end: Offset
    segments: tuple[Offset, ...] = ()
    replaced: tuple[Offset, ...] = ()
    replacing: tuple[Offset, ...] = ()

    def expected(self, present: Collection[Offset]) -> list[Offset]:
        """The segments that must exist, if `present` are those that do."""
        lost_old = sum(base not in present for base in self.replaced)
        lost_new = sum(base not in present for base in self.replacing)
        is_old = lost_old < lost_new
        if lost_old == lost_new:
            is_old = any(base in present for base in set(self.replaced) - set(self.replacing))
        return sorted({*self.segments, *(self.replaced if is_old else self.replacing)})

    def holes(
        self, present: Iterable[Offset], *, start: Offset, end_of: Callable[[Offset], Offset]
    ) -> list[Hole]:
        """What is missing from a log that starts at `start` and has the segments `present`.

        `end_of` returns where the records of one of them end; it is called for few.
        """
        bases = sorted(present)
        known_ends: dict[Offset, Offset] = {}
        found: list[Hole] = []
        for base in self.expected(set(bases)):
            if base in bases:
                continue
            before = max((other for other in bases if other < base), default=None)
            if before is not None:
                if before not in known_ends:
                    known_ends[before] = end_of(before)
                if known_ends[before] > base:
                    continue  # it was merged
            following = next((other for other in bases if other > base), self.end)
            if following <= start or (found and found[-1].next == following):
                continue
            found.append(Hole(Offset(max(base, start)), Offset(following)))
        return found

    def cut_at(self, offset: Offset) -> "SegmentManifest":
        """Without the segments from `offset` on. Gaps stay allowed where they were."""

        def below(bases: tuple[Offset, ...]) -> tuple[Offset, ...]:
            return tuple(base for base in bases if base < offset)

        return replace(
            self,
            generation=self.generation + 1,
            segments=below(self.segments),
            replaced=below(self.replaced),
            replacing=below(self.replacing),
        )


def missing_between(
    holes: Iterable[Hole], start: Offset, stop: Offset, gaps_below: Offset
) -> Hole | None:
    """What is missing in [start, stop), the offsets between the records of two segments.

    From `gaps_below` on every offset must exist; below it, only those of `holes`.
    """
    for hole in holes:
        if hole.first < stop and start < hole.next:
            return Hole(max(hole.first, start), hole.next)
    first = max(start, gaps_below)
    return Hole(first, stop) if first < stop else None


def encode_manifest(manifest: SegmentManifest) -> bytes:
    body = json.dumps(
        {
            "end": manifest.end,
            "segments": manifest.segments,
            "replaced": manifest.replaced,
            "replacing": manifest.replacing,
        }
    )
    return encode_document(_NAME, CheckedDocument(manifest.generation, body.encode()))


def decode_manifest(content: bytes) -> SegmentManifest:
    """Raises `FormatError` for anything that `encode_manifest` cannot have made."""
    document = decode_document(_NAME, content)
    try:
        fields = json.loads(document.body)
        return SegmentManifest(
            generation=document.generation,
            end=Offset(int(fields["end"])),
            segments=_bases(fields["segments"]),
            replaced=_bases(fields["replaced"]),
            replacing=_bases(fields["replacing"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise FormatError(f"a {_NAME} file without its fields: {error}") from error


def _bases(found: Iterable[int]) -> tuple[Offset, ...]:
    return tuple(Offset(int(base)) for base in found)
