"""The transactions at the end of a log, for readers that are not its writer.

The writer knows which transactions are open; its files say so only in parts. A snapshot beside a
segment has those that were open where the segment begins, and the markers from there on say how
they ended. What was aborted since is taken from the markers too: the index of the segment that is
written to may lag behind.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from cordwood.errors import CorruptSegmentError, FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import CONTROL, TRANSACTIONAL
from cordwood.format.control_record import ControlType, decode_control_key
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.partition.producer_snapshots import read_snapshot
from cordwood.log.reading.segment_list import SegmentList
from cordwood.quantities import NO_OFFSET, Offset, ProducerId
from cordwood.storage.files import FileSystem
from cordwood.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class TransactionTail:
    """What is known up to `offset`: first offsets of open transactions, by producer; aborted ones.

    A value: going on makes a new one, so that any thread may hold this.
    """

    start: Offset
    offset: Offset
    open: Mapping[int, Offset] = field(default_factory=lambda: MappingProxyType({}))
    aborted: tuple[AbortedTransaction, ...] = ()

    @property
    def last_stable_offset(self) -> Offset:
        """Everything below, of what is known, is decided."""
        return min([self.offset, *self.open.values()])

    def overlapping(self, start: int, stop: int) -> list[AbortedTransaction]:
        """Those of the aborted ones that have records in [start, stop)."""
        return [t for t in self.aborted if t.last_offset >= start and t.first_offset < stop]


def begin_tail(fs: FileSystem, directory: str, segments: SegmentList) -> TransactionTail:
    """What the newest snapshot says that lies at the beginning of a segment."""
    local = [segment for segment in segments if not segment.is_archived]
    for segment in reversed(local):
        try:
            entries = read_snapshot(fs, directory, segment.base_offset)
        except (FileNotFoundError, FormatError):
            continue  # derived: without it the walk begins earlier
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
    bound: Callable[[Segment], int],
) -> TransactionTail:
    """Walk on to `high_watermark`. Damage is passed over: whoever reads there is told of it."""
    walk = _Walk(tail)
    for index in range(max(segments.floor(tail.offset), 0), len(segments)):
        segment = segments[index]
        if segment.base_offset >= high_watermark:
            break
        walk.over(segment, bound(segment), high_watermark)
    return TransactionTail(tail.start, high_watermark, walk.open, tuple(walk.aborted))


class _Walk:
    """Follows transactional batches and their markers."""

    def __init__(self, tail: TransactionTail) -> None:
        self.open: dict[int, Offset] = dict(tail.open)
        self.aborted: list[AbortedTransaction] = list(tail.aborted)
        self._offset = tail.offset

    def over(self, segment: Segment, size: int, stop: Offset) -> None:
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
        records = decoder.parse(index).records()
        if not records or records[0].key is None:
            return
        kind = decode_control_key(records[0].key).type
        if kind not in (ControlType.ABORT, ControlType.COMMIT):
            return
        began = self.open.pop(producer_id, None)
        if began is None or kind is ControlType.COMMIT:
            return
        marker = Offset(records[0].offset)
        self.aborted.append(
            AbortedTransaction(
                producer_id=ProducerId(producer_id),
                first_offset=began,
                last_offset=marker,
                last_stable_offset=min([Offset(marker + 1), *self.open.values()]),
            )
        )
