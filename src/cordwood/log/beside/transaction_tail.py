"""The transactions at the end of a log, for readers that are not its writer.

Only the writer knows which transactions are open, but the files tell. A producer snapshot beside a
segment lists the transactions that were open where the segment begins; the markers from there on
say how they ended. Aborted transactions are taken from the markers too, because the transaction
index of the active segment may lag behind.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import CONTROL, TRANSACTIONAL
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.partition.derived_state.producer_snapshots import marker_in, read_snapshot
from cordwood.log.reading.log_source import LogView
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import NO_OFFSET, Offset, ProducerId
from cordwood.storage.files import FileSystem
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.value_class import dataclass, field


@dataclass(frozen=True, slots=True)
class TransactionTail:
    """The transactions known up to `offset`: open ones, with their first offset, and aborted ones.

    Immutable: extending it makes a new one, so any thread may hold it.
    """

    start: Offset
    offset: Offset
    open: Mapping[int, Offset] = field(default_factory=lambda: MappingProxyType({}))
    aborted: tuple[AbortedTransaction, ...] = ()

    @property
    def last_stable_offset(self) -> Offset:
        """Every transaction that begins below this offset is committed or aborted."""
        return min([self.offset, *self.open.values()])

    def overlapping(self, start: int, stop: int) -> list[AbortedTransaction]:
        """The aborted transactions that have records in [start, stop)."""
        return [t for t in self.aborted if t.last_offset >= start and t.first_offset < stop]


def begin_tail(fs: FileSystem, directory: str, segments: SegmentList) -> TransactionTail:
    """The open transactions of the newest snapshot that lies at the beginning of a segment."""
    local = [segment for segment in segments if not segment.is_archived]
    for segment in reversed(local):
        try:
            entries = read_snapshot(fs, directory, segment.base_offset)
        except (FileNotFoundError, FormatError):
            continue  # a snapshot can be derived: without it the walk begins earlier
        began: dict[int, Offset] = {
            entry.producer_id: entry.current_txn_first_offset
            for entry in entries
            if entry.current_txn_first_offset != NO_OFFSET
        }
        return TransactionTail(segment.base_offset, segment.base_offset, began)
    first = local[0].base_offset if local else segments.first_offset
    return TransactionTail(first, first)


def extend_tail(
    tail: TransactionTail,
    segments: SegmentList,
    high_watermark: Offset,
    bound: Callable[[ReadableSegment], int],
) -> TransactionTail:
    """Walk on to `high_watermark`. Damage is skipped: reading the records there reports it."""
    walk = _Walk(tail)
    for index in range(max(segments.floor(tail.offset), 0), len(segments)):
        segment = segments[index]
        if segment.base_offset >= high_watermark:
            break
        walk.over(segment, bound(segment), high_watermark)
    return TransactionTail(tail.start, high_watermark, walk.open, tuple(walk.aborted))


class FollowedTransactions:
    """Keeps the tail of one log and extends it as the log grows. Any thread may use it."""

    def __init__(
        self, fs: FileSystem, directory: str, readable_bytes: Callable[[ReadableSegment], int]
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._readable_bytes = readable_bytes
        self._tail: TransactionTail | None = None

    def up_to(self, view: LogView) -> TransactionTail:
        """The tail up to the high watermark of `view`, which shows the local segments."""
        tail = self._tail
        if tail is None or not view.segments.first_offset <= tail.offset <= view.high_watermark:
            tail = begin_tail(self._fs, self._directory, view.segments)
        if tail.offset < view.high_watermark:
            tail = extend_tail(tail, view.segments, view.high_watermark, self._readable_bytes)
        self._tail = tail
        return tail


class _Walk:
    """Follows transactional batches and their markers."""

    def __init__(self, tail: TransactionTail) -> None:
        self.open: dict[int, Offset] = dict(tail.open)
        self.aborted: list[AbortedTransaction] = list(tail.aborted)
        self._offset = tail.offset

    def over(self, segment: ReadableSegment, size: int, stop: Offset) -> None:
        start: Offset | None = max(self._offset, segment.base_offset)
        while start is not None and start < stop:
            reader = segment.reader(size=size)
            try:
                position = reader.locate(start, segment.hint(start))
                if position is None:
                    return
                for first, end in reader.chunks(
                    position, reader.next_offset, start_offset=start, stop_offset=stop
                ):
                    self._look_at(reader.decoder, first, end)
                return
            except CorruptSegmentError as error:
                start = error.next_offset

    def _look_at(self, decoder: BatchDecoder, first: int, end: int) -> None:
        row, column = tables.BATCH_ROW, tables.B_ATTRIBUTES
        attributes = decoder.rows[first * row + column : end * row : row]
        if not any(found & TRANSACTIONAL for found in set(attributes)):
            return  # as nearly always
        for index, found in enumerate(attributes, first):
            if not found & TRANSACTIONAL:
                continue
            producer_id = decoder.field(index, tables.B_PRODUCER_ID)
            if found & CONTROL:
                self._end(decoder, index, producer_id)
            else:
                offset = Offset(decoder.field(index, tables.B_BASE_OFFSET))
                self.open.setdefault(producer_id, offset)

    def _end(self, decoder: BatchDecoder, index: int, producer_id: int) -> None:
        marker = marker_in(decoder, index)
        began = None if marker is None else self.open.pop(producer_id, None)
        if marker is None or began is None or not marker.is_abort:
            return
        self.aborted.append(
            AbortedTransaction(
                producer_id=ProducerId(producer_id),
                first_offset=began,
                last_offset=marker.offset,
                last_stable_offset=min([Offset(marker.offset + 1), *self.open.values()]),
            )
        )
