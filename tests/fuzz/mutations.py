"""Sound input made unsound: the mutations of the driver, where there is no better one."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

INPUT_BYTES_MAX: Final = 4096
_EDGES: Final = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0x8000, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)


def mutate(rng: Random, pool: Sequence[bytes]) -> bytes:
    """One of the pool, changed in a few places."""
    data = bytearray(rng.choice(pool))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        _change(rng, data, pool)
    return bytes(data[:INPUT_BYTES_MAX])


def _change(rng: Random, data: bytearray, pool: Sequence[bytes]) -> None:
    at = rng.randint(0, len(data))
    size = rng.choice((1, 1, 2, 4, 8, 32))
    match rng.randrange(8):
        case 0 if data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        case 1 if data:
            data[min(at, len(data) - 1)] = rng.randrange(256)
        case 2:
            data[at:at] = rng.randbytes(size)
        case 3:
            del data[at : at + size]
        case 4:
            data[at:at] = data[at : at + size]
        case 5:
            edge = rng.choice(_EDGES)
            width = max((edge.bit_length() + 7) // 8, rng.choice((1, 2, 4, 8)))
            data[at : at + width] = edge.to_bytes(width, "big")
        case 6:
            other = rng.choice(pool)
            start = rng.randint(0, len(other))
            data[at:] = other[start:]
        case _:
            del data[at:]
