"""Signatures of the kernels; `kernels.py` holds the code and what each promises."""

from array import array
from collections.abc import Callable
from typing import Any

from typing_extensions import Buffer

from cordwood.format.record import Record

_Words = array[int] | memoryview

COMPILED: bool

def scan_headers(
    data: Buffer,
    start: int,
    end: int,
    next_offset_min: int,
    stop_offset: int,
    offset_limit: int,
    is_dense: bool,
    rows: _Words,
) -> tuple[int, int, int]: ...
def first_bad_checksum(
    data: Buffer,
    rows: _Words,
    count: int,
    whole: memoryview,
    hardware_crc: Callable[[memoryview], int],
) -> int: ...
def find_batch_start(
    data: Buffer, start: int, end: int, offset_min: int, offset_max: int, room: int
) -> int: ...
def parse_records(
    data: Buffer, start: int, end: int, rows: _Words, batch: int, table: _Words, first_row: int
) -> tuple[int, int, int]: ...
def parse_plain_batches(
    data: Buffer, rows: _Words, first_batch: int, batch_count: int, table: _Words
) -> tuple[int, int, int, int]: ...
def first_row_at(table: _Words, start_row: int, end_row: int, offset: int) -> int: ...
def first_row_at_time(table: _Words, start_row: int, end_row: int, timestamp: int) -> int: ...
def check_produced(
    table: _Words,
    count: int,
    base_offset: int,
    timestamp_min: int,
    timestamp_max: int,
    needs_key: bool,
    faults: _Words,
) -> tuple[bool, int, int]: ...
def survey_produced(
    data: Buffer, start: int, end: int
) -> tuple[int, int, int, bool, int, int, int, int] | None: ...
def make_records(
    data: Buffer, table: _Words, start_row: int, end_row: int, record_type: type[Record]
) -> list[Record]: ...
def take_words(
    table: _Words, start_row: int, end_row: int, field: int, out: _Words, out_row: int
) -> None: ...
def take_binary(
    data: Buffer,
    table: _Words,
    start_row: int,
    end_row: int,
    field: int,
    ends: _Words,
    validity: Buffer,
    out: Buffer,
    out_row: int,
    out_position: int,
) -> tuple[int, int]: ...
def survey_records(
    records: list[Any], record_type: type[Record]
) -> tuple[int | None, int | None, int]: ...
def encode_records(
    records: list[Any], first: int, now_ms: int, record_type: type[Record], out: Buffer, start: int
) -> tuple[int, int, int, int, int]: ...
def murmur2(data: Buffer) -> int: ...
def split_by_key(
    records: list[Any], record_type: type[Record], partitions: int, keyless: int
) -> tuple[list[list[Any]], array[int]]: ...
def crc32c_portable(data: Buffer) -> int: ...
def index_batches(
    rows: _Words,
    count: int,
    chunk_position: int,
    base_offset: int,
    interval: int,
    state: _Words,
    offset_entries: Buffer,
    time_entries: Buffer,
) -> tuple[int, int]: ...
def find_key(data: Buffer, table: _Words, start_row: int, end_row: int, key: Buffer) -> int: ...
def header_totals(table: _Words, start_row: int, end_row: int) -> int: ...
def take_headers(
    data: Buffer,
    table: _Words,
    start_row: int,
    end_row: int,
    list_ends: _Words,
    names: _Words,
    out_row: int,
    header_row: int,
) -> int: ...
