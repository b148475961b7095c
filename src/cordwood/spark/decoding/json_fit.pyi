"""Signatures; `json_fit.py` holds the code and what the kernel promises."""

from array import array
from typing import Protocol

from typing_extensions import Buffer

COMPILED: bool

NODE_WORDS: int
LEVEL_WORDS: int
DEPTH_MAX: int

ANY: int
OBJECT: int
LIST: int
TEXT: int
BOOLEAN: int
INTEGER: int
DOUBLE: int
FLOAT: int
DECIMAL: int
DATE: int
TIME: int
BASE64: int

class _Shape(Protocol):
    @property
    def nodes(self) -> array[int]: ...
    @property
    def names(self) -> bytes: ...
    @property
    def seen(self) -> array[int]: ...

def mark_fitting(
    offsets: Buffer,
    data: Buffer,
    shape: _Shape,
    levels: array[int],
    fits: Buffer,
) -> None: ...
