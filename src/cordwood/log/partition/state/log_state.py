"""The state of a log: one frozen value that says how far everything has come.

    start <= high_watermark <= end
    recovery_point <= durable <= end
    high_watermark <= held_from, unless the log starts behind it

    field            meaning                                       who moves it, and where
    segments         the local segments; the last one is active    rolling, truncation, deletion,
                                                                   replacement of segments
    start            first offset that can be read locally         deletion up; emptying anywhere
    high_watermark   first offset that no reader may see           append or sync up, as the role
                                                                   decides; truncation down
    end              offset of the next record                     append up; truncation down
    durable          everything below is on the disk               sync up; truncation down
    recovery_point   where recovery starts to read after a crash   checkpoint up; truncation down
    held_from        a publication is under way: its batches       holding and releasing
                     begin here and nobody may see them
    unsynced         files a sync must bring to the disk besides   rolling and truncation add;
                     the active segment                            a sync removes
    cleaned_up_to    how far the log was compacted; None: never    compaction up; truncation down
    cut_count        how often the end was cut off                 truncation up
    failure          why the log acknowledges nothing any more     anyone, once
    is_closed        the files are closed                          closing, once

A part that changes the log carries out the effects on files first and then replaces the state in
one assignment, through `StateHolder`, which is the only place that does. What vouches for offsets
(durable, recovery point, high watermark) is taken back before bytes are removed and moved up after
bytes were written, so an interruption in between leaves the log with less than it could claim,
never with more.
"""

from collections.abc import Collection
from typing import NamedTuple

from cordwood.errors import LogFailedError
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import Offset
from cordwood.storage.files import DirectoryHandle
from cordwood.storage.segment import Segment


class UnsyncedFiles(NamedTuple):
    """What a sync must bring to the disk besides the active segment.

    segments    frozen segments that are not sealed yet, oldest first
    snapshots   paths of producer snapshots
    names       the directory, if files were created or removed. It is opened with the change, so
                that a sync needs no descriptor
    """

    segments: tuple[Segment, ...] = ()
    snapshots: tuple[str, ...] = ()
    names: DirectoryHandle | None = None

    def plus(self, segment: Segment) -> "UnsyncedFiles":
        if segment in self.segments:
            return self
        return self._replace(segments=(*self.segments, segment))

    def without(self, gone: Collection[Segment]) -> "UnsyncedFiles":
        return self._replace(segments=tuple(s for s in self.segments if s not in gone))

    def after_sync_of(
        self, synced: "UnsyncedFiles", *, unwritten: "UnsyncedFiles"
    ) -> "UnsyncedFiles":
        """What is left once `synced`, an earlier value of this, is on the disk.

        `unwritten` has the derived files of `synced` that could not be written.
        """
        if self == NOTHING_UNSYNCED:
            return self
        done = [s for s in synced.segments if s not in unwritten.segments]
        return UnsyncedFiles(
            tuple(s for s in self.segments if s not in done or s.indexes.needs_rebuilding),
            tuple(
                path
                for path in self.snapshots
                if path not in synced.snapshots or path in unwritten.snapshots
            ),
            # Names may have changed since; one sync of the directory too many does no harm.
            None if self is synced else self.names,
        )


NOTHING_UNSYNCED = UnsyncedFiles()


class LogState(NamedTuple):
    """One consistent state of a log; a new one replaces it, nothing edits it.

    The table at the head of this module says what the fields mean and who moves them.
    """

    # First what every append moves, then what every sync moves: see `StateHolder.extend` and
    # `StateHolder.end_sync`, which know the order.
    high_watermark: Offset
    end: Offset
    durable: Offset
    segments: SegmentList[Segment]
    start: Offset
    recovery_point: Offset
    held_from: Offset | None = None
    unsynced: UnsyncedFiles = NOTHING_UNSYNCED
    cleaned_up_to: Offset | None = None
    cut_count: int = 0
    failure: LogFailedError | None = None
    is_closed: bool = False

    @property
    def is_writable(self) -> bool:
        return self.failure is None and not self.is_closed

    def visible(self, offset: Offset) -> Offset:
        """`offset`, as far as a publication that is under way lets anyone know of it."""
        return offset if self.held_from is None else min(offset, self.held_from)

    def lowered_to(self, offset: Offset) -> "LogState":
        """Vouch for nothing from `offset` on: these offsets will be given again.

        The recovery point goes back to the beginning of a segment, because the walk of recovery
        begins with one.
        """
        point = min(self.recovery_point, self.segments.active.base_offset, offset)
        index = max(self.segments.floor(point), 0)
        cleaned = self.cleaned_up_to
        return self._replace(
            recovery_point=min(point, self.segments[index].base_offset),
            durable=min(self.durable, offset),
            high_watermark=min(self.high_watermark, offset),
            cleaned_up_to=None if cleaned is None else min(cleaned, offset),
            cut_count=self.cut_count + 1,
        )
