"""Reading an archived segment by range and reading it whole give the same answers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.archive.copying import copier
from cordwood.archive.manifests.manifest import Manifest
from cordwood.archive.topics.partition_archive import PartitionArchive
from cordwood.errors import StorageError
from cordwood.format.record import Record
from cordwood.log.beside.archived_log import ArchivedLog
from cordwood.log.reading.file_range import read_range
from cordwood.quantities import KIB
from cordwood.value_class import replace
from fakes.archived_store import ARCHIVE, ArchivedStore, stored
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC

KEYS = [b"a", b"b", b"c", b"d"]
SIZES = st.lists(st.sampled_from([0, 10, 700, 5_000, 30_000]), min_size=4, max_size=24)


class WholeArchive(PartitionArchive):
    """Knows no sums of blocks, so it fetches whole log files: the judge."""

    def _take(self, manifest: Manifest):  # type: ignore[no-untyped-def]
        segments = tuple(replace(segment, sums=None) for segment in manifest.segments)
        return super()._take(replace(manifest, segments=segments))


class Pair:
    """One archive with blocks of 4 KiB, read by range and read whole."""

    def __init__(self, sizes: list[int], cache_bytes: int) -> None:
        fs = SimulatedFileSystem()
        self.bench = ArchivedStore(fs)
        self.bench.create(segment_records=6, key_index=True)
        for number, size in enumerate([*sizes, 0]):
            self.bench.log.append_many(
                [
                    Record(
                        key=KEYS[(number + n) % 4],
                        value=bytes(size),
                        timestamp_ms=1000 + (number * 7919) % 500,
                    )
                    for n in range(1 + number % 3)
                ]
            )
        self.bench.log.upkeep.index_keys()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(copier, "BLOCK_BYTES", 4 * KIB)
            self.bench.archive_and_drop()
        self.ranged = self.log(PartitionArchive, fs, cache_bytes)
        self.whole = self.log(WholeArchive, SimulatedFileSystem(), 1 << 30)

    def log(
        self, kind: type[PartitionArchive], fs: SimulatedFileSystem, cache_bytes: int
    ) -> ArchivedLog:
        archive = self.bench.archives.archive_of(
            self.bench.log, self.bench.store.topic(TOPIC).topic_id
        )
        assert archive is not None
        other = ArchivedStore(fs, data=f"/{kind.__name__}", cache_bytes=cache_bytes)
        place = replace(archive.place, directory="", owner=None)
        source = kind(archive.objects, place, other.archives._parts)
        return ArchivedLog(TOPIC, 0, source, allows_gaps=False)


@given(sizes=SIZES, cache_bytes=st.sampled_from([1, 20_000, 1 << 30]), data=st.data())
def test_every_lookup_agrees_with_the_whole_file(
    sizes: list[int], cache_bytes: int, data: st.DataObject
) -> None:
    pair = Pair(sizes, cache_bytes)
    ranged, whole = pair.ranged, pair.whole
    end = whole.end_offset
    if end == whole.start_offset:
        return

    for offset in data.draw(st.lists(st.integers(0, end - 1), max_size=5)):
        assert ranged.get(offset) == whole.get(offset)
    for time in data.draw(st.lists(st.integers(990, 1510), max_size=3)):
        assert ranged.offset_for_time(time) == whole.offset_for_time(time)
    assert ranged.offset_for_time(-3) == whole.offset_for_time(-3)
    for key in KEYS:
        assert ranged.find(key) == whole.find(key)
        assert list(ranged.history(key)) == list(whole.history(key))
    start = data.draw(st.integers(0, end - 1))
    bytes_max = data.draw(st.sampled_from([1, 5_000, 1 << 20]))
    one, other = (read_range(log.source, start, max_bytes=bytes_max) for log in (ranged, whole))
    assert one is not None
    assert other is not None
    assert (one.position, one.length, one.base_offset) == (
        other.position,
        other.length,
        other.base_offset,
    )
    assert one.file.read_at(one.position, one.length) == other.file.read_at(
        other.position, other.length
    )
    assert list(ranged.read()) == list(whole.read())


@given(sizes=SIZES, data=st.data())
def test_damage_is_an_error_of_both_or_far_from_what_is_read(
    sizes: list[int], data: st.DataObject
) -> None:
    pair = Pair(sizes, 1 << 30)
    fs = pair.bench.fs
    end = pair.whole.end_offset
    if end == pair.whole.start_offset:
        return
    expected = [record.value for record in pair.ranged.read()]
    fresh = pair.log(PartitionArchive, SimulatedFileSystem(), 1 << 30)
    key = data.draw(
        st.sampled_from(sorted(k for k in stored(fs) if k.endswith((".log", ".packed"))))
    )
    path = f"{ARCHIVE}/{key}"
    at = data.draw(st.integers(0, fs.size(path) - 1))
    how = data.draw(st.sampled_from(["flip", "cut", "grow"]))
    file = fs.open_write(path)
    if how == "flip":
        file.write_at(at, bytes([file.read_at(at, 1)[0] ^ 0x10]))
    else:
        file.truncate_to(at if how == "cut" else fs.size(path) + 1)

    for offset in range(end):
        try:
            found = fresh.get(offset)
        except StorageError as error:
            assert "is damaged" in str(error)
        else:
            assert found is not None
            assert found.value == expected[offset]
