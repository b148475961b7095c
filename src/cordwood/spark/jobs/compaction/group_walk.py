"""Reads the batches of a group of segments, in an executor.

Opens the files that the plan names, without the store. If a file is gone or has another size, it
was replaced since, and the task fails.
"""

from collections.abc import Iterator
from typing import Final

from cordwood.errors import LogError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.file_names import FileKind
from cordwood.log.compaction import key_map as keys
from cordwood.log.compaction.key_map import KeyMap
from cordwood.quantities import MIB, FilePosition, Offset
from cordwood.spark.jobs.compaction.group_plan import GroupPlan
from cordwood.storage.files import FileSystem, RealFileSystem
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from cordwood.value_class import dataclass

CHUNK_BYTES: Final = 1 * MIB
_BATCHES_PER_CHUNK: Final = 8192
_LOAD_FACTOR: Final = 0.9
_SLOTS_MIN: Final = 64
_UNCOUNTED_MAX: Final = (
    1_000_000  # a map of this size is small; counting the records first is not worth it
)
_LIMITS: Final = SegmentLimits(index_bytes_max=0, index_interval_bytes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSecret:
    """Values that all tasks of one run share: the key of the hash, the time, and its name."""

    secret: bytes
    now_ms: int
    run_id: str = ""  # of its `StagingRun`


def open_group(group: GroupPlan, fs: FileSystem | None = None) -> list[Segment]:
    """The segments of the group, if they are unchanged since the plan."""
    files = fs or RealFileSystem()
    handles = HandleCache()
    opened = []
    for place in group.segments:
        segment = Segment.open_sealed(
            files,
            group.directory,
            place.base_offset,
            size=place.size,
            next_offset=place.next_offset,
            handles=handles,
            limits=_LIMITS,
        )
        try:
            size = files.size(segment.path(FileKind.LOG))
        except FileNotFoundError:
            size = -1
        if size != place.size:
            raise LogError(
                f"{segment.name} changed since the job was planned: the log was compacted, or "
                "segments were deleted, meanwhile; run the job again"
            )
        opened.append(segment)
    return opened


def chunks_of(segments: list[Segment]) -> Iterator[tuple[BatchDecoder, int, int]]:
    """Runs [first, stop) of sound batches, in order, as indexes into the decoder."""
    decoder = BatchDecoder(batches_max=_BATCHES_PER_CHUNK)
    for segment in segments:
        reader = segment.reader()
        reader.decoder = decoder
        for first, stop in reader.chunks(
            FilePosition(0), segment.base_offset, chunk_bytes=CHUNK_BYTES
        ):
            yield decoder, first, stop
        segment.close()


def record_count_max(group: GroupPlan) -> int:
    """An upper bound of the records in the group; after compaction there are fewer than offsets."""
    offsets = group.stop - group.start
    if offsets <= _UNCOUNTED_MAX:
        return offsets
    row, column = tables.BATCH_ROW, tables.B_RECORD_COUNT
    return sum(
        sum(decoder.rows[first * row + column : stop * row : row])
        for decoder, first, stop in chunks_of(open_group(group))
    )


def new_key_map(secret: bytes, *, key_count_max: int, start_offset: int) -> KeyMap:
    """A map with room for that many keys, so that it is never full."""
    slots = min(max(int(key_count_max / _LOAD_FACTOR) + 2, _SLOTS_MIN), keys.SLOTS_MAX)
    return KeyMap(slots, slots - 1, secret, Offset(start_offset))
