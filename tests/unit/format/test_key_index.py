"""The bytes of a key index: found again, and damage never hides a key."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import ChecksumMismatchError, FormatError, TruncatedInputError
from cordwood.format.key_hashes import key_hash
from cordwood.format.key_index import (
    ENTRIES_PER_PAGE,
    HEADER_SIZE,
    PAGE_SIZE,
    KeyIndexPages,
    encode_header,
    encode_pages,
)


def encoded(notes: list[tuple[bytes, int]], log_size: int = 77) -> bytearray:
    entries = sorted({(key_hash(key), position) for key, position in notes})
    content = b"".join(h.to_bytes(8, "big") + p.to_bytes(4, "big") for h, p in entries)
    header = encode_header(log_size=log_size, entry_count=len(entries))
    return bytearray(header + encode_pages(content))


def pages(data: bytes | bytearray) -> KeyIndexPages:
    return KeyIndexPages(memoryview(data))


@given(
    st.lists(st.tuples(st.binary(max_size=3), st.integers(0, 2**31 - 1)), max_size=60),
    st.binary(max_size=3),
)
def test_every_batch_of_a_key_is_found_in_order(notes: list[tuple[bytes, int]], key: bytes) -> None:
    index = pages(encoded(notes))

    found = list(index.batches_of(key))

    assert found == sorted({position for other, position in notes if other == key})
    assert index.log_size == 77


@pytest.mark.parametrize("count", [0, 1, 340, 341, 342, 682, 5000])
def test_keys_are_found_over_any_number_of_pages(count: int) -> None:
    index = pages(encoded([(b"key %d" % n, n) for n in range(count)]))

    for n in range(count):
        assert list(index.batches_of(b"key %d" % n)) == [n]
    assert list(index.batches_of(b"other")) == []


def test_one_key_may_fill_several_pages() -> None:
    many = [(b"hot", n) for n in range(3 * ENTRIES_PER_PAGE)]
    index = pages(encoded([*many, (b"a", 1), (b"b", 2)]))

    assert list(index.batches_of(b"hot")) == list(range(3 * ENTRIES_PER_PAGE))
    assert list(index.batches_of(b"a")) == [1]
    assert list(index.batches_of(b"b")) == [2]


@pytest.mark.parametrize("at", range(0, HEADER_SIZE, 3))
def test_a_changed_header_is_refused(at: int) -> None:
    data = encoded([(b"k", 1)])
    data[at] ^= 0x10

    with pytest.raises(FormatError):
        pages(data)


@pytest.mark.parametrize("size", [0, 31, 32, 35, 47])
def test_a_cut_file_is_refused(size: int) -> None:
    data = encoded([(b"k", 1)])

    with pytest.raises(TruncatedInputError):
        pages(data[:size])


def test_a_rotten_page_is_noticed_by_whoever_looks_at_it() -> None:
    keys = [b"key %d" % n for n in range(5000)]
    data = encoded([(key, 9) for key in keys])
    for page in range((len(data) - HEADER_SIZE) // PAGE_SIZE + 1):
        data[min(HEADER_SIZE + page * PAGE_SIZE + 77, len(data) - 1)] ^= 1
    index = pages(data)

    for key in keys[:100]:
        with pytest.raises(ChecksumMismatchError):
            list(index.batches_of(key))


@given(st.data())
def test_one_rotten_byte_hides_no_key(data: st.DataObject) -> None:
    keys = [b"key %d" % n for n in range(1000)]
    content = encoded([(key, n) for n, key in enumerate(keys)])
    content[data.draw(st.integers(HEADER_SIZE, len(content) - 1))] ^= data.draw(st.integers(1, 255))
    index = pages(content)
    number = data.draw(st.integers(0, 999))

    try:
        found = list(index.batches_of(keys[number]))
    except ChecksumMismatchError:
        return

    assert found == [number]
