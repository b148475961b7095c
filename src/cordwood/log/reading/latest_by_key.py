"""Reading a table from a log: the newest value of each key.

A damaged log still yields a table: damage is skipped with a warning that names it, and the records
after it count.
"""

import logging
from collections.abc import Iterator

from cordwood.errors import (
    CorruptSegmentError,
    FormatError,
    OffsetOutOfRangeError,
    StorageError,
)
from cordwood.format.batch_header import HEADER_SIZE, BatchHeader, decode_batch_header
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.record import Record
from cordwood.log.reading.file_range import read_range
from cordwood.log.reading.log_source import LogSource
from cordwood.log.reading.record_walk import read_runs
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
