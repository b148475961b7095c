"""A table read from a log: the newest value of each key, as far as the log can be read.

Whoever keeps a table in a log would rather have what is left of it than nothing: damage is
passed over with a warning that names it. Records behind it still count.
"""

import logging

from varve.errors import CorruptSegmentError, FormatError, OffsetOutOfRangeError
from varve.format.batch_header import HEADER_SIZE, decode_batch_header
from varve.log.log_reader import LogReader
from varve.quantities import Offset

logger = logging.getLogger(__name__)


def newest_values(log: LogReader, start: Offset, stop: Offset) -> dict[bytes, bytes | None]:
    """What each key in [start, stop) was last set to; None where a tombstone came last."""
    newest: dict[bytes, bytes | None] = {}
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
    return newest


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
    found = log.read_range(offset, max_bytes=HEADER_SIZE)
    if found is None:
        return log.high_watermark
    header = decode_batch_header(found.file.read_at(found.position, HEADER_SIZE))
    return Offset(max(header.next_offset, offset + 1))
