"""A table read from a log: the newest value of each key, as far as the log can be read.

Whoever keeps a table in a log would rather have what is left of it than nothing: damage is
passed over with a warning that names it. Records behind it still count.
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
from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import Offset

logger = logging.getLogger(__name__)


def newest_values(log: LogReader, start: Offset, stop: Offset) -> dict[bytes, bytes | None]:
    """What each key in [start, stop) was last set to; None where a tombstone came last.

    What an aborted transaction wrote does not count.
    """
    newest: dict[bytes, bytes | None] = {}
    for first, end in _committed_ranges(log, start, stop):
        _read_into(newest, log, first, end)
    return newest


def _committed_ranges(
    log: LogReader, start: Offset, stop: Offset
) -> Iterator[tuple[Offset, Offset]]:
    """[start, stop) without the batches of aborted transactions; whole where there is none."""
    try:
        aborted = log.aborted_transactions(start, stop)
    except (FormatError, StorageError) as error:
        logger.warning("%s: aborted transactions cannot be told from others: %s", log.name, error)
        aborted = []
    if not aborted:
        yield start, stop
        return
    offset = max(start, min(first for _, first in aborted))
    if start < offset:
        yield start, offset
    while offset < stop:
        try:
            header = _header_at(log, offset)
        except CorruptSegmentError as error:
            header = None
            end = stop if error.next_offset is None else error.next_offset
        except (FormatError, OffsetOutOfRangeError):
            header, end = None, stop
        else:
            end = stop if header is None else header.next_offset
        end = Offset(min(max(end, offset + 1), stop))
        if header is not None and header.is_control:
            # A marker ends what its producer began before it; what it begins later is another.
            aborted = [(p, f) for p, f in aborted if p != header.producer_id or f > offset]
        elif header is None or not _is_of(header, aborted):
            yield offset, end
        offset = end


def _is_of(header: BatchHeader, aborted: list[tuple[int, Offset]]) -> bool:
    return header.is_transactional and any(
        producer_id == header.producer_id and first <= header.base_offset
        for producer_id, first in aborted
    )


def _read_into(
    newest: dict[bytes, bytes | None], log: LogReader, start: Offset, stop: Offset
) -> None:
    offset = start
    is_careful = False
    while offset < stop:
        try:
            if is_careful:
                offset = _past_unparsable(log, offset, stop, newest)
                is_careful = False
                continue
            for record in log.read(offset, stop=stop):
                offset = Offset(record.offset + 1)
                if record.key is not None:
                    newest[record.key] = record.value
        except OffsetOutOfRangeError as error:
            if error.start <= offset:
                break  # shorter than it was: what is not there cannot be read
            offset = error.start  # records before it were dropped meanwhile
        except CorruptSegmentError as error:
            logger.warning("what it held is left out: %s", error)
            following = stop if error.next_offset is None else error.next_offset
            offset = Offset(max(offset + 1, following))
        except FormatError:
            offset = Offset(offset + is_careful)  # in any case it ends
            is_careful = True
        else:
            break


def _past_unparsable(
    log: LogReader, start: Offset, stop: Offset, newest: dict[bytes, bytes | None]
) -> Offset:
    """Read batch by batch up to the one whose checksum is right and whose content is not.

    Returns where that one ends. Many are parsed at a time otherwise, so it is not the next.
    """
    offset = start
    while offset < stop:
        end = min(_end_of_batch(log, offset), stop)
        try:
            records = list(log.read(offset, stop=end))
        except FormatError as error:
            logger.warning(
                "%s: offsets %d to %d cannot be parsed and are left out: %s",
                log.name,
                offset,
                end,
                error,
            )
            return end
        newest.update((record.key, record.value) for record in records if record.key is not None)
        offset = end
    return offset


def _end_of_batch(log: LogReader, offset: Offset) -> Offset:
    header = _header_at(log, offset)
    return log.high_watermark if header is None else Offset(max(header.next_offset, offset + 1))


def _header_at(log: LogReader, offset: Offset) -> BatchHeader | None:
    """Of the batch that holds `offset`, or of the next one; None at the end."""
    found = log.read_range(offset, max_bytes=HEADER_SIZE)
    if found is None:
        return None
    return decode_batch_header(found.file.read_at(found.position, HEADER_SIZE))
