"""Records as they are read from one partition, some at a time."""

from typing import NamedTuple

from cordwood.format import record_table
from cordwood.format.batch import RecordRun
from cordwood.format.record import Record


class RecordChunk(NamedTuple):
    """Records of one partition in their order; `next_offset` is where reading goes on."""

    partition: int
    records: list[Record]
    next_offset: int


def records_of_key(run: RecordRun, key: bytes) -> list[Record]:
    """The records of a run that have that key. Nothing is made of a run that has none."""
    if record_table.find_key(run.data, run.table, run.start, run.end, key) < 0:
        return []
    return [record for record in run.records() if record.key == key]
