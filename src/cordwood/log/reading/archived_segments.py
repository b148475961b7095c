"""The port between a log and its archive, whose segments read as the beginning of the log.

A log asks three things of an archive: which segments it holds, to forget offsets for good, and to
look again. How segments get there and back is not the log's concern.

    [archive start ........ archive end)
                 [local start ............ high watermark ... end)

The two overlap: a segment is archived first, and its local copy is deleted later. A reader sees
one log that starts where the archive does, and reads local copies where there are any. If the two
do not touch, the gap cannot be crossed and the log is its local part alone.
"""

from collections.abc import Sequence
from typing import NamedTuple, Protocol
from uuid import UUID

from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.log.reading.log_source import LogView
from cordwood.log.reading.segment_list import SegmentList
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import LeaderEpoch, Offset, TimestampMs
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.value_class import dataclass


def cluster_owner(cluster_id: str) -> str:
    """The owner of archives that the brokers of a cluster write together."""
    return f"cluster {cluster_id}"


class ArchivedState(NamedTuple):
    """One consistent view of an archive. Replaced, never edited.

    Invariant: the segments follow each other without a gap, and offsets in [start, end) can be
    read from them; empty when start == end.
    """

    segments: tuple[ReadableSegment, ...]
    start: Offset
    end: Offset


class LedReplica(Protocol):
    """The replica of a partition that its leader archives. Any thread may ask."""

    @property
    def led_in(self) -> LeaderEpoch | None:
        """The epoch in which this replica leads; None while it does not."""
        ...

    def agreed_end(self, epochs: Sequence[EpochEntry], end: Offset) -> Offset:
        """Up to where an archive that ends at `end` has the records of this replica.

        `epochs` are those of the archive.
        """
        ...


class ArchivedSegments(Protocol):
    """The archive of one partition. Any thread may call it."""

    def state(self) -> ArchivedState:
        """The archived segments, as far as they are known here.

        Asks the object store only if `is_known` is false.
        """
        ...

    @property
    def is_known(self) -> bool: ...

    @property
    def may_change(self) -> bool:
        """Whether `keep` is for this store to call: not for a replica that does not lead."""
        ...

    def refresh(self) -> None:
        """Ask the object store again: something that should be there is missing."""
        ...

    def keep(self, start: Offset, end: Offset) -> None:
        """Forget everything outside [start, end). Durable on return; raises if that fails."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivePlace:
    """The partition whose archive is wanted.

    `directory` holds the log's own files; empty if there are none. `owner` is the `writer_id` of
    the store that writes the log; None for a reader. If the owner is a cluster, `led` is the
    replica of this broker, and only its leader changes the archive.
    """

    topic: str
    topic_id: UUID
    partition: int
    directory: str
    config: TopicConfig
    allows_gaps: bool
    owner: str | None
    led: LedReplica | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveStatus:
    """How far the archive of one partition has come."""

    topic: str
    partition: int
    url: str
    start_offset: Offset
    archived_up_to: Offset
    segment_count: int
    size_bytes: int
    copied_segments: int  # since the store was opened
    copied_bytes: int
    last_success_ms: TimestampMs | None
    last_error: str | None


def _beginning(local: LogView) -> tuple[int, Offset | None]:
    """The number of local segments that do not count, and the base offset of the next one.

    Those end below the local start and are about to be deleted. The offset is None if nothing can
    precede the log.
    """
    gone = max(local.segments.floor(local.start), 0)
    first = local.segments[gone].base_offset
    return gone, None if first == 0 or local.start > first else first


class ArchiveJoin:
    """Puts the archive before a log's own segments. Remembers the last list it made."""

    def __init__(self, source: ArchivedSegments) -> None:
        self.source = source
        self._last: tuple[SegmentList, int, tuple[ReadableSegment, ...], SegmentList] | None = None
        self._looked_for = Offset(0)

    def is_settled(self, local: LogView) -> bool:
        """Whether `over` needs no object store, which may take long to answer."""
        _, first = _beginning(local)
        if first is None:
            return True
        if not self.source.is_known:
            return False
        return self.source.state().end >= first or first == self._looked_for

    def over(self, local: LogView) -> LogView:
        """`local`, preceded by the segments that only the archive has."""
        gone, first = _beginning(local)
        if first is None:
            return local
        archived = self.source.state()
        if archived.end < first and first != self._looked_for:
            self._looked_for = first  # another process may have archived and dropped segments
            self.source.refresh()
            archived = self.source.state()
        if archived.end < first or not archived.segments:
            return local
        if archived.start >= first:
            # A deletion on request forgets archived offsets first; the log follows.
            start = Offset(min(archived.start, local.high_watermark))
            return local._replace(start=start)
        segments = self._joined(local.segments, gone, archived.segments)
        return local._replace(segments=segments, start=archived.start)

    def _joined(
        self, local: SegmentList, gone: int, archived: tuple[ReadableSegment, ...]
    ) -> SegmentList:
        last = self._last
        if last is not None and last[:3] == (local, gone, archived):
            return last[3]
        kept = local.behind(gone)
        # The last of them may reach beyond the first local one, in a cluster: another replica
        # has archived it. It counts up to where that begins (`SegmentList.end_of`).
        before = [s for s in archived if s.base_offset < kept.first_offset]
        joined: SegmentList = SegmentList([*before, *kept])
        self._last = (local, gone, archived, joined)
        return joined
