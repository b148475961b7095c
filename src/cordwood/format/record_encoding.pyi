"""Signatures; `record_encoding.py` holds the code and what each kernel promises."""

from array import array
from collections.abc import Callable, Sequence
from typing import Any

from typing_extensions import Buffer

from cordwood.format.record import Header, Record

COMPILED: bool

def encode_sole(
    value: bytes | None,
    key: bytes | None,
    headers: Sequence[Header],
    timestamp: int,
    max_timestamp: int,
    attributes: int,
    size_max: int,
    hardware_crc: Callable[[Buffer], int],
) -> bytearray | int: ...
def survey_records(
    records: list[Any], record_type: type[Record]
) -> tuple[int | None, int | None, int]: ...
def encode_records(
    records: list[Any], first: int, now_ms: int, record_type: type[Record], out: Buffer, start: int
) -> tuple[int, int, int, int, int]: ...
def murmur2(data: Buffer) -> int: ...
def split_by_key(
    records: list[Any], record_type: type[Record], partitions: int, keyless: int
) -> tuple[list[list[Any]], array[int]]: ...
