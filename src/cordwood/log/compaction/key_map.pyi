"""Signatures of the kernels; `key_map.py` holds the code and what each promises."""

from array import array
from typing import Final

from typing_extensions import Buffer

_Words = array[int] | memoryview

COMPILED: bool
SLOT_BYTES: Final[int]
SLOTS_MAX: Final[int]
GROWTH_PER_RECORD: Final[int]
COUNT_WORDS: Final[int]
COUNT_READ: Final[int]
COUNT_KEPT: Final[int]
COUNT_KEYLESS: Final[int]
COUNT_CHANGED_BATCHES: Final[int]
COUNT_TOMBSTONES: Final[int]

def hash_key(key: Buffer, secret_low: int, secret_high: int) -> tuple[int, int]: ...
def hash_keys(
    data: Buffer, table: _Words, count: int, secret_low: int, secret_high: int, hashes: _Words
) -> None: ...
def put_latest(
    words: _Words,
    slots: int,
    used: int,
    limit: int,
    hashes: _Words,
    table: _Words,
    count: int,
    start_offset: int,
) -> tuple[int, int]: ...
def find_offset(words: _Words, slots: int, low: int, high: int) -> int: ...
def decide_records(
    words: _Words,
    slots: int,
    latest: int,
    hashes: _Words,
    table: _Words,
    count: int,
    drops_tombstones: bool,
    kept: bytearray,
) -> tuple[int, int, int, int]: ...
def copy_records(
    data: Buffer,
    start: int,
    end: int,
    table: _Words,
    count: int,
    kept: bytearray,
    is_rebased: bool,
    base_timestamp: int,
    out: bytearray,
    at: int,
) -> int: ...
def run_end(rows: _Words, first_batch: int, end_batch: int, mask: int) -> int: ...
def filter_batches(
    data: Buffer,
    rows: _Words,
    first_batch: int,
    end_batch: int,
    table: _Words,
    first_row: int,
    hashes: _Words,
    words: _Words,
    slots: int,
    latest: int,
    now_ms: int,
    new_horizon: int,
    retained: _Words,
    kept: bytearray,
    out: bytearray,
    at: int,
    rebuilt: _Words,
    counts: _Words,
) -> tuple[int, int, int, int]: ...

class KeyMap:
    words: memoryview
    slots: int
    limit: int
    used: int
    start_offset: int
    latest: int
    is_full: bool

    def __init__(self, slots: int, limit: int, secret: bytes, start_offset: int) -> None: ...
    def hashes_of(self, data: Buffer, table: _Words, count: int) -> array[int]: ...
    def put(self, data: Buffer, table: _Words, count: int) -> int: ...
    def pass_to(self, next_offset: int) -> None: ...
    def get(self, key: bytes) -> int | None: ...
