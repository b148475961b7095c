"""Signatures; `sole_fetch.py` holds the code and what it promises."""

from typing_extensions import Buffer

COMPILED: bool

def find_sole_fetch(
    data: Buffer, start: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, int, int, int, int, int] | None: ...
