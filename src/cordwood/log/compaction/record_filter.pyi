"""Signatures; `record_filter.py` holds the code and what each kernel promises."""

from array import array
from typing import Final, Protocol

from typing_extensions import Buffer

from cordwood.log.compaction.key_map import KeyMap

_Words = array[int] | memoryview

COMPILED: bool
GROWTH_PER_RECORD: Final[int]
COUNT_WORDS: Final[int]
COUNT_READ: Final[int]
COUNT_KEPT: Final[int]
COUNT_KEYLESS: Final[int]
COUNT_CHANGED_BATCHES: Final[int]
COUNT_TOMBSTONES: Final[int]

class _Run(Protocol):
    @property
    def data(self) -> Buffer: ...
    @property
    def table(self) -> _Words: ...
    @property
    def end(self) -> int: ...

class _Batches(Protocol):
    @property
    def data(self) -> Buffer: ...
    @property
    def rows(self) -> _Words: ...
    @property
    def table(self) -> _Words: ...
    @property
    def hashes(self) -> _Words: ...

class _Rules(Protocol):
    @property
    def key_map(self) -> KeyMap: ...
    @property
    def now_ms(self) -> int: ...
    @property
    def new_horizon(self) -> int: ...
    @property
    def retained(self) -> _Words: ...

class _Output(Protocol):
    @property
    def kept(self) -> bytearray: ...
    @property
    def data(self) -> bytearray: ...
    @property
    def rebuilt(self) -> _Words: ...
    @property
    def counts(self) -> _Words: ...

def decide_records(
    key_map: KeyMap,
    hashes: _Words,
    table: _Words,
    count: int,
    drops_tombstones: bool,
    kept: bytearray,
) -> tuple[int, int, int, int]: ...
def copy_records(
    run: _Run,
    start: int,
    end: int,
    kept: bytearray,
    new_base_timestamp: int | None,
    out: bytearray,
) -> int: ...
def run_end(rows: _Words, first_batch: int, end_batch: int, mask: int) -> int: ...
def filter_batches(
    batches: _Batches,
    first_batch: int,
    end_batch: int,
    first_row: int,
    rules: _Rules,
    output: _Output,
) -> tuple[int, int, int, int]: ...
