"""Signatures; `record_scan.py` holds the code and what each kernel promises."""

from array import array

from typing_extensions import Buffer

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
    data: Buffer, start: int, end: int
) -> tuple[int, int, int, bool, int, int, int, int] | None: ...
