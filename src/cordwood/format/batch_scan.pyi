"""Signatures; `batch_scan.py` holds the code and what each kernel promises."""

from array import array
from collections.abc import Callable

from typing_extensions import Buffer

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
def find_batch(
    data: Buffer, start: int, end: int, first_offset: int, last_offset: int, offset: int
) -> tuple[int, int, int]: ...
def floor_entry(entries: Buffer, relative_offset: int) -> tuple[int, int]: ...
def entries_around(
    entries: Buffer, base_offset: int, offset: int
) -> tuple[int, int, int, int, int]: ...
def first_bad_checksum(
    data: Buffer,
    rows: _Words,
    count: int,
    whole: memoryview,
    hardware_crc: Callable[[memoryview], int],
) -> int: ...
def crc32c_portable(data: Buffer) -> int: ...
def find_batch_start(
    data: Buffer, start: int, end: int, offset_min: int, offset_max: int, room: int
) -> int: ...
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
