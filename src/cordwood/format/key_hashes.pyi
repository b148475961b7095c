"""Signatures; `key_hashes.py` holds the code and what each kernel promises."""

from array import array
from typing import Protocol

from typing_extensions import Buffer

class _Run(Protocol):
    @property
    def data(self) -> Buffer: ...
    @property
    def table(self) -> array[int]: ...
    @property
    def start(self) -> int: ...
    @property
    def end(self) -> int: ...

class _Notes(Protocol):
    @property
    def hashes(self) -> array[int]: ...
    @property
    def positions(self) -> array[int]: ...
    @property
    def count(self) -> int: ...

def key_hash(key: Buffer) -> int: ...
def collect_keys(
    run: _Run,
    rows: array[int],
    first_batch: int,
    batch_count: int,
    chunk_position: int,
    low: int,
    high: int,
    notes: _Notes,
) -> tuple[int, int]: ...
def sort_keys(
    hashes: array[int],
    positions: array[int],
    count: int,
    spare_hashes: array[int],
    spare_positions: array[int],
) -> None: ...
def put_entries(hashes: array[int], positions: array[int], count: int, out: Buffer) -> int: ...
def first_entry_at(entries: Buffer, start: int, count: int, value: int) -> int: ...
def last_note_of(hashes: array[int], count: int, value: int) -> int: ...
