"""Signatures of the kernels; `column_kernels.py` holds the code and what each promises."""

from array import array

from typing_extensions import Buffer

_Words = array[int] | memoryview

def spans(
    ends: _Words, first: int, count: int, validity: Buffer, data_size: int, out: _Words
) -> int: ...
def choose_places(
    keys: _Words,
    key_data: Buffer,
    given: _Words,
    topics: _Words,
    first_places: _Words,
    partition_counts: _Words,
    turn: int,
    rows_per_turn: int,
    crc_table: _Words,
    places: _Words,
) -> tuple[int, int]: ...
def order_by_place(places: _Words, starts: _Words, rows: _Words) -> None: ...
def encode_rows(
    rows: _Words,
    first: int,
    stop: int,
    keys: _Words,
    key_data: Buffer,
    values: _Words,
    value_data: Buffer,
    times: _Words,
    headers: _Words,
    names: _Words,
    name_data: Buffer,
    header_values: _Words,
    header_data: Buffer,
    now_ms: int,
    out: Buffer,
    start: int,
    record_count: int,
    base_timestamp: int,
    max_timestamp: int,
) -> tuple[int, int, int, int, int]: ...
