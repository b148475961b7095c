"""Reading a table from a log: the newest value of each key.

A damaged log still yields a table: damage is skipped with a warning that names it, and the records
after it count.
"""

import logging
from collections.abc import Iterator
from typing import Protocol

from cordwood.errors import (
    CorruptSegmentError,
    FormatError,
    OffsetOutOfRangeError,
    StorageError,
)
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import (
    CONTROL,
    HEADER_SIZE,
    TRANSACTIONAL,
    BatchHeader,
    decode_batch_header,
)
from cordwood.format.control_record import ControlType, control_type_of
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.record import Record
from cordwood.log.reading.file_range import read_range
from cordwood.log.reading.log_source import LogSource
from cordwood.log.reading.record_walk import read_runs, walk_runs
from cordwood.quantities import Offset

logger = logging.getLogger(__name__)


def newest_values(source: LogSource, start: Offset, stop: Offset) -> dict[bytes, bytes | None]:
    """The newest value of each key in [start, stop); None if the newest record is a tombstone.

    Records of aborted transactions do not count.
    """
    newest: dict[bytes, bytes | None] = {}
    for first, end in _committed_ranges(source, start, stop):
        _read_into(newest, source, first, end)
    return newest


class RecordVisitor(Protocol):
    """What `fold_records` shows the records to."""

    def record(self, record: Record, producer_id: int | None) -> None:
        """A record, and the producer in whose transaction it was written, if any."""
        ...

    def marker(self, producer_id: int, *, is_commit: bool) -> None:
        """The transaction of a producer ends."""
        ...


def fold_records(source: LogSource, start: Offset, stop: Offset, visitor: RecordVisitor) -> None:
    """Show every record and every transaction marker in [start, stop) to `visitor`, in order.

    Damage is skipped with a warning, as in `newest_values`.
    """
    offset = start
    is_careful = False
    while offset < stop:
        walk = _MarkedWalk(visitor, is_careful=is_careful)
        try:
            for run in walk_runs(source, offset, stop, walk):
                producer_id = walk.producer_id
                for record in run.records():
                    visitor.record(record, producer_id)
                    offset = Offset(record.offset + 1)
        except OffsetOutOfRangeError as error:
            if error.start <= offset:
                break  # the log is shorter than it was
            offset = error.start  # earlier records were deleted meanwhile
        except CorruptSegmentError as error:
            logger.warning("%s: skipping damaged records: %s", source.name, error)
            following = stop if error.next_offset is None else error.next_offset
            offset = Offset(max(offset + 1, following))
        except FormatError as error:
            if is_careful:
                end = max(offset + 1, walk.next_offset)
                logger.warning(
                    "%s: skipping offsets %d to %d, which cannot be parsed: %s",
                    source.name,
                    offset,
                    end,
                    error,
                )
                offset = Offset(end)
            is_careful = not is_careful
        else:
            break


class _MarkedWalk:
    """Cuts a walk into runs of one producer each, and reports the markers between them.

    If `is_careful`, each batch is a run of its own: then it is known which one cannot be parsed.
    """

    def __init__(self, visitor: RecordVisitor, *, is_careful: bool) -> None:
        self._visitor = visitor
        self._is_careful = is_careful
        self.producer_id: int | None = None  # of the run that was yielded last
        self.next_offset = 0  # behind the batch that is being parsed

    def left_over(self, decoder: BatchDecoder, first: int, end: int) -> Iterator[tuple[int, int]]:
        start = first
        for index in range(first, end):
            attributes = decoder.field(index, tables.B_ATTRIBUTES)
            if not attributes & (TRANSACTIONAL | CONTROL):
                if self._is_careful:
                    yield self._plain(decoder, index, index + 1)
                    start = index + 1
                continue
            if start < index:
                yield self._plain(decoder, start, index)
            start = index + 1
            self.next_offset = decoder.field(index, tables.B_NEXT_OFFSET)
            producer_id = decoder.field(index, tables.B_PRODUCER_ID)
            if attributes & CONTROL:
                self._report(decoder, index, producer_id)
            else:
                self.producer_id = producer_id
                yield index, index + 1
        if start < end:
            yield self._plain(decoder, start, end)

    def _plain(self, decoder: BatchDecoder, start: int, end: int) -> tuple[int, int]:
        self.producer_id = None
        self.next_offset = decoder.field(start, tables.B_NEXT_OFFSET)
        return start, end

    def _report(self, decoder: BatchDecoder, index: int, producer_id: int) -> None:
        for record in decoder.parse(index).records():
            kind = control_type_of(record.key or b"")
            if kind in (ControlType.ABORT, ControlType.COMMIT):
                self._visitor.marker(producer_id, is_commit=kind is ControlType.COMMIT)


def _committed_ranges(
    source: LogSource, start: Offset, stop: Offset
) -> Iterator[tuple[Offset, Offset]]:
    """[start, stop) without the batches of aborted transactions; in one piece if there are none."""
    try:
        aborted = source.aborted_transactions(start, stop)
    except (FormatError, StorageError) as error:
        logger.warning(
            "%s: aborted transactions are unknown, their records are read too: %s",
            source.name,
            error,
        )
        aborted = []
    if not aborted:
        yield start, stop
        return
    offset = max(start, min(transaction.first_offset for transaction in aborted))
    if start < offset:
        yield start, offset
    while offset < stop:
        try:
            header = _header_at(source, offset)
        except CorruptSegmentError as error:
            header = None
            end = stop if error.next_offset is None else error.next_offset
        except (FormatError, OffsetOutOfRangeError):
            header, end = None, stop
        else:
            end = stop if header is None else header.next_offset
        end = Offset(min(max(end, offset + 1), stop))
        if header is not None and header.is_control:
            # A marker ends the transaction that its producer began before it, not a later one.
            aborted = [
                transaction
                for transaction in aborted
                if transaction.producer_id != header.producer_id
                or transaction.first_offset > offset
            ]
        elif header is None or not _is_of(header, aborted):
            yield offset, end
        offset = end


def _is_of(header: BatchHeader, aborted: list[AbortedTransaction]) -> bool:
    return header.is_transactional and any(
        transaction.producer_id == header.producer_id
        and transaction.first_offset <= header.base_offset
        for transaction in aborted
    )


def _records(source: LogSource, start: Offset, stop: Offset) -> Iterator[Record]:
    for run in read_runs(source, start, stop):
        yield from run.records()


def _read_into(
    newest: dict[bytes, bytes | None], source: LogSource, start: Offset, stop: Offset
) -> None:
    offset = start
    is_careful = False
    while offset < stop:
        try:
            if is_careful:
                offset = _past_unparsable(source, offset, stop, newest)
                is_careful = False
                continue
            for record in _records(source, offset, stop):
                offset = Offset(record.offset + 1)
                if record.key is not None:
                    newest[record.key] = record.value
        except OffsetOutOfRangeError as error:
            if error.start <= offset:
                break  # the log is shorter than it was
            offset = error.start  # earlier records were deleted meanwhile
        except CorruptSegmentError as error:
            logger.warning("%s: skipping damaged records: %s", source.name, error)
            following = stop if error.next_offset is None else error.next_offset
            offset = Offset(max(offset + 1, following))
        except FormatError:
            offset = Offset(offset + is_careful)  # so that the loop always ends
            is_careful = True
        else:
            break


def _past_unparsable(
    source: LogSource, start: Offset, stop: Offset, newest: dict[bytes, bytes | None]
) -> Offset:
    """Read up to the batch that cannot be parsed although its checksum is right; return its end.

    Reads batch by batch: a normal read parses many batches at a time, so the failing one may be
    any of them.
    """
    offset = start
    while offset < stop:
        end = min(_end_of_batch(source, offset), stop)
        try:
            records = list(_records(source, offset, end))
        except FormatError as error:
            logger.warning(
                "%s: skipping offsets %d to %d, which cannot be parsed: %s",
                source.name,
                offset,
                end,
                error,
            )
            return end
        newest.update((record.key, record.value) for record in records if record.key is not None)
        offset = end
    return offset


def _end_of_batch(source: LogSource, offset: Offset) -> Offset:
    header = _header_at(source, offset)
    if header is None:
        return source.high_watermark
    return Offset(max(header.next_offset, offset + 1))


def _header_at(source: LogSource, offset: Offset) -> BatchHeader | None:
    """The header of the batch that holds `offset`, or of the next one; None at the end."""
    found = read_range(source, offset, max_bytes=HEADER_SIZE)
    if found is None:
        return None
    return decode_batch_header(found.file.read_at(found.position, HEADER_SIZE))
