"""Some records of one partition, as a reader returns them."""

from typing import NamedTuple

from cordwood.format import record_table
from cordwood.format.batch import RecordRun
from cordwood.format.record import Record


class RecordChunk(NamedTuple):
    """Records of one partition in order. Reading continues at `next_offset`."""

    partition: int
    records: list[Record]
    next_offset: int


def records_of_key(run: RecordRun, key: bytes) -> list[Record]:
    """The records of a run with that key. A run without them is not decoded."""
    if record_table.find_key(run.data, run.table, run.start, run.end, key) < 0:
        return []
    return [record for record in run.records() if record.key == key]
