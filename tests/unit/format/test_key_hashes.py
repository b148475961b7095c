"""The loops of the key index, held against the plainest way to say the same."""

from __future__ import annotations

from array import array
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.format import key_hashes
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_builder import BatchStyle, build_batch
from cordwood.format.compression import Codec
from cordwood.format.record import Record
from cordwood.quantities import TimestampMs

MASK = (1 << 64) - 1
HASHES = st.integers(0, MASK)


@dataclass(frozen=True)
class Notes:
    hashes: array[int]
    positions: array[int]
    count: int


def plain_hash(key: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in key:
        value = ((value ^ byte) * 0x100000001B3) & MASK
    value ^= value >> 33
    value = (value * 0xFF51AFD7ED558CCD) & MASK
    value ^= value >> 33
    value = (value * 0xC4CEB9FE1A85EC53) & MASK
    return value ^ (value >> 33)


@given(st.binary(max_size=100))
def test_the_hash_is_the_one_the_format_names(key: bytes) -> None:
    assert key_hashes.key_hash(key) == plain_hash(key)


def test_the_hash_never_changes() -> None:
    assert key_hashes.key_hash(b"") == 0xEFD01F60BA992926
    assert key_hashes.key_hash(b"user:42") == plain_hash(b"user:42")


@given(st.lists(st.tuples(HASHES, st.integers(0, 2**31 - 1)), max_size=50))
def test_notes_are_sorted_by_hash_and_keep_their_order(notes: list[tuple[int, int]]) -> None:
    hashes = array("Q", [value for value, _ in notes])
    positions = array("Q", [position for _, position in notes])
    spare = array("Q", bytes(8 * len(notes))), array("Q", bytes(8 * len(notes)))

    key_hashes.sort_keys(hashes, positions, len(notes), *spare)

    assert list(zip(hashes, positions, strict=True)) == sorted(notes, key=lambda note: note[0])


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=40))
def test_each_pair_of_hash_and_position_is_written_once(notes: list[tuple[int, int]]) -> None:
    notes.sort()
    out = bytearray(12 * len(notes))

    count = key_hashes.put_entries(
        array("Q", [h for h, _ in notes]), array("Q", [p for _, p in notes]), len(notes), out
    )

    entries = [
        (int.from_bytes(out[at : at + 8], "big"), int.from_bytes(out[at + 8 : at + 12], "big"))
        for at in range(0, 12 * count, 12)
    ]
    assert entries == sorted(set(notes))


@given(st.lists(HASHES, max_size=40), HASHES)
def test_the_first_entry_at_or_past_a_hash_is_found(values: list[int], wanted: int) -> None:
    values.sort()
    entries = b"".join(value.to_bytes(8, "big") + bytes(4) for value in values)

    found = key_hashes.first_entry_at(b"??" + entries, 2, len(values), wanted)

    assert found == sum(value < wanted for value in values)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_keys_are_noted_with_the_batch_they_lie_in(codec: Codec) -> None:
    style = BatchStyle(bytes_max=1 << 20, codec=codec, level=None, is_log_append_time=False)
    contents: list[list[bytes | None]] = [[b"a", b"a", None, b"b"], [b""], [None], [b"c", b"a"]]
    stream = bytearray()
    starts: list[int] = []
    offset = 0
    for keys in contents:
        starts.append(len(stream))
        batch = build_batch([Record(b"v", key) for key in keys], TimestampMs(1), style)
        batch.data[:8] = offset.to_bytes(8, "big")
        stream += batch.data
        offset += len(keys)
    decoder = BatchDecoder()
    count = decoder.scan(memoryview(stream), 0, len(stream))
    hashes, positions = array("Q", bytes(800)), array("Q", bytes(800))

    noted, batch_index = 0, 0
    for run in decoder.runs(0, count):
        noted, batch_index = key_hashes.collect_keys(
            run, decoder.rows, batch_index, count, 1000, 0, MASK, Notes(hashes, positions, noted)
        )

    expected = [
        (plain_hash(key), 1000 + start)
        for keys, start in zip(contents, starts, strict=True)
        for key in dict.fromkeys(key for key in keys if key is not None)
    ]
    assert list(zip(hashes[:noted], positions[:noted], strict=True)) == expected


def test_too_many_keys_for_the_room_are_said_so() -> None:
    style = BatchStyle(bytes_max=1 << 20, codec=Codec.NONE, level=None, is_log_append_time=False)
    batch = build_batch([Record(b"v", b"k%d" % n) for n in range(5)], TimestampMs(1), style)
    decoder = BatchDecoder()
    decoder.scan(memoryview(batch.data), 0, len(batch.data))
    [run] = decoder.runs(0, 1)
    small = array("Q", bytes(8 * 4))

    count, _ = key_hashes.collect_keys(
        run, decoder.rows, 0, 1, 0, 0, MASK, Notes(small, array("Q", small), 0)
    )

    assert count == -1


def test_the_last_note_of_a_hash_is_found() -> None:
    hashes = array("Q", [5, 7, 5, 9])

    assert key_hashes.last_note_of(hashes, 4, 5) == 2
    assert key_hashes.last_note_of(hashes, 2, 5) == 0
    assert key_hashes.last_note_of(hashes, 4, 6) == -1
    assert key_hashes.last_note_of(hashes, 0, 5) == -1
