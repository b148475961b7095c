"""Signatures; `json_paths.py` holds the code and what the kernel promises."""

from array import array
from typing import Protocol

from typing_extensions import Buffer

COMPILED: bool

NO: int
MAYBE: int
YES: int

DEPTH_MAX: int

class _Condition(Protocol):
    @property
    def names(self) -> bytes: ...
    @property
    def name_ends(self) -> array[int]: ...
    @property
    def operator(self) -> int: ...
    @property
    def kind(self) -> int: ...
    @property
    def number(self) -> float: ...
    @property
    def text(self) -> bytes: ...

def answer_rows(
    spans: memoryview,
    data: Buffer,
    condition: _Condition,
    bytes_max: int,
    levels: array[int],
    answers: Buffer,
) -> None: ...
