"""Signatures; `sole_produce.py` holds the code and what it promises."""

from typing_extensions import Buffer

from cordwood.quantities import Offset

COMPILED: bool

def find_sole_produce(
    data: Buffer, start: int, end: int
) -> tuple[int, int, int, int, int, int, int, int, int, int, int] | None: ...
def find_sole_produces(
    data: Buffer, ends: list[int]
) -> list[tuple[int, int, int, bytes, int, list[int], list[int], list[int]]]: ...
def repeat_answer(
    answer: bytes, correlation_ids: list[int], base_offsets: list[Offset], offset_at: int
) -> bytearray: ...
