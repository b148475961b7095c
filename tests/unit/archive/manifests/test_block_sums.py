"""A part of a file is accepted only if each of its blocks is what was archived."""

import hashlib
import random

import pytest

from cordwood.archive.manifests.block_sums import (
    SUM_SIZE,
    BlockSums,
    block_count,
    check_blocks,
    sums_size,
)
from cordwood.errors import FormatError

CONTENT = random.Random(1).randbytes(10_000)
BLOCK = 1024


def sums_of(content: bytes, piece: int) -> bytes:
    sums = BlockSums(BLOCK)
    for at in range(0, len(content), piece):
        sums.update(content[at : at + piece])
    return sums.finish()


@pytest.mark.parametrize("piece", [1, 7, 1023, 1024, 1025, 4096, 10_000])
def test_the_sums_do_not_depend_on_the_pieces(piece: int) -> None:
    wanted = [
        hashlib.sha256(CONTENT[at : at + BLOCK]).digest() for at in range(0, len(CONTENT), BLOCK)
    ]

    assert sums_of(CONTENT, piece) == b"".join(wanted)


@pytest.mark.parametrize("size", [0, 1, 1023, 1024, 1025, 2048])
def test_each_begun_block_has_a_sum(size: int) -> None:
    sums = sums_of(CONTENT[:size], 100)

    assert len(sums) == sums_size(size, BLOCK) == SUM_SIZE * block_count(size, BLOCK)


@pytest.mark.parametrize(("first", "end"), [(0, 1), (0, 10), (3, 7), (9, 10)])
def test_any_run_of_blocks_is_verified_alone(first: int, end: int) -> None:
    sums = sums_of(CONTENT, 4096)[first * SUM_SIZE : end * SUM_SIZE]

    check_blocks(CONTENT[first * BLOCK : end * BLOCK], sums, BLOCK)


@pytest.mark.parametrize("at", [0, 1023, 1024, 2500, 9_999])
def test_a_changed_bit_is_found(at: int) -> None:
    changed = bytearray(CONTENT)
    changed[at] ^= 1

    with pytest.raises(FormatError, match="SHA-256 differs from the manifest"):
        check_blocks(changed, sums_of(CONTENT, 4096), BLOCK)


@pytest.mark.parametrize("size", [0, 9_000, 9_999, 10_241])
def test_too_few_or_too_many_bytes_are_refused(size: int) -> None:
    with pytest.raises(FormatError):
        check_blocks((CONTENT * 2)[:size], sums_of(CONTENT, 4096), BLOCK)
