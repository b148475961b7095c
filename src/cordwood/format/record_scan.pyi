"""Signatures; `record_scan.py` holds the code and what each kernel promises."""

from array import array

from typing_extensions import Buffer

from cordwood.format.unplaced_batch import UnplacedBatch

_Words = array[int] | memoryview

COMPILED: bool

def parse_records(
    data: Buffer, start: int, end: int, rows: _Words, batch: int, table: _Words, first_row: int
) -> tuple[int, int, int]: ...
def find_record(data: Buffer, start: int, end: int, offset: int, row: _Words) -> int: ...
def parse_plain_batches(
    data: Buffer, rows: _Words, first_batch: int, batch_count: int, table: _Words
) -> tuple[int, int, int, int]: ...
def survey_produced(
    source: Buffer, start: int, end: int, oldest_ms: int, newest_ms: int, needs_keys: bool
) -> UnplacedBatch | None: ...
def survey_all_produced(
    source: Buffer,
    spans: list[int],
    size_max: int,
    oldest_ms: int,
    newest_ms: int,
    needs_keys: bool,
) -> tuple[list[UnplacedBatch], bytearray, bool] | None: ...
