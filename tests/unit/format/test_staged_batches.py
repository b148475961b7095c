"""Files of staged batches are read back as written, and never trusted."""

from __future__ import annotations

from random import Random

import pytest

from cordwood.errors import FormatError
from cordwood.format.staged_batches import (
    END_SIZE,
    MAGIC,
    StagedIndex,
    decode_end,
    decode_index,
)
from fakes.client_batches import client_batch


def staged(*places: tuple[str, int]) -> bytes:
    """A file with one batch for each of `places`, in that order."""
    content, index = bytearray(MAGIC), StagedIndex()
    for number, place in enumerate(places):
        batch = client_batch(b"%d" % number)
        index.add(place, len(content), len(batch))
        content += batch
    return bytes(content) + index.encode(len(content))


def read(content: bytes) -> StagedIndex:
    end = decode_end(content[-END_SIZE:], len(content))
    return decode_index(end, content[end.index_position : -END_SIZE])


def test_an_index_says_where_the_batches_of_each_place_lie() -> None:
    content = staged(("orders", 0), ("orders", 1), ("orders", 0))

    index = read(content)

    batches = [content[at : at + size] for at, size in index.of(("orders", 0))]
    assert batches == [bytes(client_batch(b"0")), bytes(client_batch(b"2"))]
    assert index.sizes() == {
        ("orders", 0): 2 * len(client_batch(b"0")),
        ("orders", 1): len(client_batch(b"0")),
    }
    assert index.of(("orders", 7)) == []


def test_a_file_may_hold_nothing() -> None:
    index = read(staged())

    assert index.sizes() == {}
    assert index.batch_count == 0


def test_a_file_that_is_cut_anywhere_is_refused() -> None:
    content = staged(("orders", 0), ("orders", 1))
    for size in range(len(content)):
        with pytest.raises(FormatError):
            read(content[:size])


def test_any_flipped_bit_outside_of_the_batches_is_found() -> None:
    content = staged(("orders", 0), ("orders", 1))
    start = len(MAGIC) + 2 * len(client_batch(b"0"))
    rng = Random(1)
    for _ in range(400):
        damaged = bytearray(content)
        damaged[rng.randrange(start, len(content))] ^= 1 << rng.randrange(8)

        with pytest.raises(FormatError):
            read(bytes(damaged))


@pytest.mark.parametrize(
    ("position", "size"), [(8, 60), (8, 10**9), (0, 61), (-5, 61), (8, -1), (2**62, 2**62)]
)
def test_a_batch_where_none_can_be_is_refused(position: int, size: int) -> None:
    index = StagedIndex()
    index.add(("orders", 0), position, size)
    content = MAGIC + bytes(client_batch(b"x")) + index.encode(8 + len(client_batch(b"x")))

    with pytest.raises(FormatError):
        read(content)


@pytest.mark.parametrize(
    "place",
    [("../etc", 0), ("", 0), ("orders", -1), ("orders", 2**31), ("a/b", 0), ("orders", "0")],
)
def test_a_place_that_cannot_be_one_is_refused(place: tuple[str, int]) -> None:
    with pytest.raises(FormatError):
        read(staged(place))
