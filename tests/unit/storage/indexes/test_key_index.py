"""Making the key index of a segment, and asking it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.storage.indexes import key_index
from cordwood.storage.indexes.key_index import KeyIndex
from cordwood.storage.segment import Segment
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import new_log


def sealed_segment(
    keys: Sequence[bytes | None], *, per_batch: int = 3
) -> tuple[PartitionLog, Segment]:
    log = new_log(SimulatedFileSystem(), {})[1]
    for at in range(0, len(keys), per_batch):
        log.append_many([(key, b"v") for key in keys[at : at + per_batch]])
    log.roll()
    log.sync()
    return log, log.state.segments[0]


def holders(log: PartitionLog, segment: Segment, key: bytes) -> list[int]:
    """Positions of the batches that hold `key`, by reading them all."""
    reader = segment.reader()
    found = []
    for first, end in reader.chunks(0, segment.base_offset):  # type: ignore[arg-type]
        for index in range(first, end):
            records = reader.decoder.parse(index).records()
            if any(record.key == key for record in records):
                found.append(reader.chunk_position + reader.decoder.field(index, 0))
    return found


@pytest.mark.parametrize("notes_max", [2_000_000, 40, 7, 1])
def test_every_key_is_found_however_little_memory_there_is(
    monkeypatch: pytest.MonkeyPatch, notes_max: int
) -> None:
    monkeypatch.setattr(key_index, "_NOTES_MAX", notes_max)
    monkeypatch.setattr(key_index, "_ROOM_MIN", 1)
    keys = [b"key %d" % (n % 50) for n in range(200)] + [b"hot"] * 60
    log, segment = sealed_segment(keys)

    count = segment.build_key_index()

    wanted = set(keys)
    for key in wanted:
        expected = holders(log, segment, key)
        assert segment.batches_of(key, size=segment.size) == expected
    assert count == sum(len(holders(log, segment, key)) for key in wanted)
    assert segment.batches_of(b"nobody", size=segment.size) == []


def test_a_segment_without_keys_has_an_empty_index() -> None:
    _, segment = sealed_segment([None, None])

    assert segment.build_key_index() == 0
    assert segment.batches_of(b"", size=segment.size) == []


def test_the_empty_key_is_a_key() -> None:
    _, segment = sealed_segment([b"", None])
    segment.build_key_index()

    assert segment.batches_of(b"", size=segment.size) == [0]


def test_an_index_of_another_size_is_not_asked() -> None:
    _, segment = sealed_segment([b"k"])
    segment.build_key_index()

    assert segment.batches_of(b"k", size=segment.size) == [0]
    assert segment.batches_of(b"k", size=segment.size + 1) is None
    assert not segment.indexes.key.is_usable(segment.size + 1)


def test_without_a_file_the_index_cannot_tell() -> None:
    index = KeyIndex(SimulatedFileSystem(), "/nowhere.keyindex")

    assert index.batches_of(b"k", log_size=1) is None
    assert not index.is_usable(1)
    index.remove()


def test_an_active_segment_has_none() -> None:
    log = new_log(SimulatedFileSystem(), {})[1]
    log.append(b"v", key=b"k")

    assert log.view().segments.active.batches_of(b"k", size=1) is None
