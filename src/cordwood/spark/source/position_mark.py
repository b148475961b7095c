"""Recognizes a position in a log by the batch before it.

An offset and a topic id do not identify a history: if a store is replaced by an older copy and
grows again, other records get the same offsets. The batch that holds the last record before the
position does identify it: its offset, its leader epoch and its checksum, which covers the records
and their timestamps.
"""

from cordwood.errors import CordwoodError
from cordwood.format.batch_header import HEADER_SIZE, decode_batch_header
from cordwood.log.reading.file_range import read_range
from cordwood.log.reading.log_reader import LogReader
from cordwood.quantities import Offset


def position_mark(log: LogReader, offset: int) -> str | None:
    """The mark of `offset`; None if the batch before it cannot be compared.

    That is so at the start of the log, where compaction rewrites batches, if the batch is
    archived, and if it cannot be read.
    """
    last = offset - 1
    try:
        view = log.view()
        index = view.segments.floor(Offset(last))
        if last < max(view.start, log.source.gaps_below) or index < 0:
            return None
        if view.segments[index].is_archived:
            return None
        found = read_range(log.source, last, max_bytes=HEADER_SIZE)
        if found is None:
            return None
        header = decode_batch_header(found.file.read_at(found.position, HEADER_SIZE))
    except (CordwoodError, OSError):
        return None
    if not header.base_offset <= last <= header.last_offset:
        return None
    return f"{header.leader_epoch}:{header.base_offset}:{header.crc:08x}"
