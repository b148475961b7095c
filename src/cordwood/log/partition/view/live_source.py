"""The log of the process that writes it, as its readers and as other replicas see it."""

from collections.abc import Sequence
from functools import partial

from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.segment_manifest import Hole
from cordwood.log.partition.derived_state.log_producers import LogProducers
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.view.log_archive import LogArchive
from cordwood.log.reading.log_source import LogView
from cordwood.quantities import Offset, TimestampMs
from cordwood.storage.segment_parts.readable_segment import ReadableSegment


class LiveSource:
    """A `LogSource` over the state of a log that is open for writing."""

    def __init__(self, holder: StateHolder, archive: LogArchive, producers: LogProducers) -> None:
        self.name = holder.name
        self.view = archive.view
        self.refresh = archive.refresh
        self.wait_beyond = holder.wait_beyond
        self._holder = holder
        self._producers = producers

    @property
    def local_start_offset(self) -> Offset:
        return self._holder.state.start

    @property
    def high_watermark(self) -> Offset:
        return self._holder.state.high_watermark

    @property
    def end_offset(self) -> Offset:
        return self._holder.state.end

    @property
    def last_stable_offset(self) -> Offset:
        return self._producers.last_stable_offset

    @property
    def is_closed(self) -> bool:
        return self._holder.state.is_closed

    @property
    def allows_gaps(self) -> bool:
        return self._holder.allows_gaps

    @property
    def gaps_below(self) -> Offset:
        return self._holder.gaps_below

    @property
    def holes(self) -> Sequence[Hole]:
        return self._holder.holes

    def replacements(self, *, look: bool) -> int:
        manifest = self._holder.manifest
        return -1 if manifest is None else manifest.generation

    @property
    def compacted_up_to(self) -> Offset | None:
        holder = self._holder
        return holder.state.cleaned_up_to if holder.config.is_compacted else None

    def readable_bytes(self, segment: ReadableSegment) -> int:
        return segment.extent.size

    def largest_timestamp(self, segment: ReadableSegment) -> tuple[TimestampMs, Offset]:
        return segment.largest_timestamp

    def key_memory(self, view: LogView) -> int | None:
        return self._holder.state.cut_count if self._holder.config.key_index else None

    def aborted_transactions(self, start: Offset, stop: Offset) -> list[AbortedTransaction]:
        return self.view().segments.aborted_transactions(start, stop)


class ReplicaSource(LiveSource):
    """The local log up to its end, for other replicas: they fetch before anything is committed."""

    def __init__(self, holder: StateHolder, archive: LogArchive, producers: LogProducers) -> None:
        super().__init__(holder, archive, producers)
        self.view = partial(_local_view, holder)


def _local_view(holder: StateHolder) -> LogView:
    state = holder.state
    return LogView(state.segments, state.start, state.end)
