"""Signatures; `row_transfers.py` holds the code and what it promises."""

from collections.abc import Sequence
from typing import TypeVar

from typing_extensions import Buffer

from cordwood.broker.net.rows.socket_rows import RowMember

COMPILED: bool

_M = TypeVar("_M", bound=RowMember)

def receive_row(
    events: list[tuple[int, int]],
    members: list[_M | None],
    buffer: Buffer,
    at: int,
    limit: int,
    small_max: int,
    table: Buffer,
    turn_s: float,
    connections: list[_M],
    ends: list[int],
) -> tuple[
    int,
    list[tuple[_M, int]],
    list[tuple[int, int]],
    list[tuple[int, int]],
]: ...
def send_row(
    connections: Sequence[object],
    data: Buffer,
    size: int,
    table: Buffer,
    members: list[_M | None],
    turn_s: float,
) -> list[tuple[int, int]]: ...
