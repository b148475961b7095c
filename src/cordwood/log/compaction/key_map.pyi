"""Signatures; `key_map.py` holds the code and what each kernel promises."""

from array import array
from typing import Final

from typing_extensions import Buffer

_Words = array[int] | memoryview

COMPILED: bool
SLOT_BYTES: Final[int]
SLOTS_MAX: Final[int]

def hash_key(key: Buffer, secret_low: int, secret_high: int) -> tuple[int, int]: ...
def hash_keys(
    data: Buffer, table: _Words, count: int, secret_low: int, secret_high: int, hashes: _Words
) -> None: ...
def put_latest(key_map: KeyMap, hashes: _Words, table: _Words, count: int) -> tuple[int, int]: ...
def find_offset(words: _Words, slots: int, low: int, high: int) -> int: ...

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
    def put_hashed(self, hashes: _Words, table: _Words, count: int) -> int: ...
    def pass_to(self, next_offset: int) -> None: ...
    def get(self, key: bytes) -> int | None: ...
