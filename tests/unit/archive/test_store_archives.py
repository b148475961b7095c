"""An archive and the live segments are one log."""

from __future__ import annotations

import hashlib
import json
from itertools import islice

import pytest

from cordwood.archive.manifests.manifest import parse_manifest, render_manifest
from cordwood.archive.objects.object_store import LocalObjects, get
from cordwood.clock import SystemClock
from cordwood.errors import ConfigError, OffsetOutOfRangeError, StorageError
from cordwood.log.reading.file_range import read_range
from cordwood.log.reading.time_lookup import MAX_TIMESTAMP, find_time
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.value_class import replace
from fakes.archived_store import ARCHIVE, URL, ArchivedStore, expected, stored, values
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


@pytest.fixture
def archived(fs: SimulatedFileSystem) -> ArchivedStore:
    """Offsets 0 to 11 archived and gone locally, 12 and 13 in the active segment."""
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(14)
    bench.archive_and_drop()
    assert bench.log.state.start == 12
    return bench


def test_archived_and_live_records_read_as_one_log(archived: ArchivedStore) -> None:
    assert archived.log.start_offset == 0
    assert values(archived.log) == expected(0, 14)


@pytest.mark.parametrize("start", range(15))
def test_reading_starts_at_any_offset_of_either_part(archived: ArchivedStore, start: int) -> None:
    assert values(archived.log, start) == expected(start, 14)


def test_a_scan_goes_over_both_parts(archived: ArchivedStore) -> None:
    rows = [v for batch in archived.log.scan(threads=2) for v in batch["value"].to_pylist()]

    assert rows == expected(0, 14)


def test_following_begins_in_the_archive(archived: ArchivedStore) -> None:
    found = islice(archived.log.follow(10), 4)

    assert [record.offset for record in found] == [10, 11, 12, 13]


@pytest.mark.parametrize(("timestamp_ms", "offset"), [(0, 0), (4500, 4), (12000, 11), (13001, 13)])
def test_times_are_found_in_either_part(
    archived: ArchivedStore, timestamp_ms: int, offset: int
) -> None:
    assert archived.log.offset_for_time(timestamp_ms) == offset


def test_the_largest_timestamp_may_be_archived(archived: ArchivedStore) -> None:
    archived.log.append(b"old", timestamp_ms=5)

    found = find_time(archived.log.source, MAX_TIMESTAMP)

    assert found is not None
    assert found.offset == 13


def test_a_key_is_found_in_the_archive(archived: ArchivedStore) -> None:
    found = archived.log.find(b"k2")

    assert found is not None
    assert found.offset == 2


def test_a_key_index_is_archived_and_saves_reading(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    bench.create(key_index=True)
    bench.append(14)
    bench.log.upkeep.index_keys()
    bench.archive_and_drop()
    bench.objects.call_log.clear()

    found = bench.log.find(b"k4")

    fetched = [key for _, key in bench.objects.call_log if key.endswith(".log")]
    assert found is not None
    assert found.offset == 4
    assert len(fetched) == 1
    assert [record.offset for record in bench.log.history(b"k4")] == [4]


def test_a_range_of_a_file_is_that_of_the_cached_copy(archived: ArchivedStore) -> None:
    found = read_range(archived.log.source, 4, max_bytes=1 << 20)

    assert found is not None
    assert found.base_offset == 4


def test_segments_say_where_they_are_without_being_fetched(archived: ArchivedStore) -> None:
    segments = archived.log.segments()

    assert [s.state for s in segments] == ["archived"] * 4 + ["active"]
    assert [s.base_offset for s in segments] == [0, 3, 6, 9, 12]
    assert segments[1].path.startswith(URL)
    assert (segments[1].first_timestamp_ms, segments[1].last_timestamp_ms) == (4000, 6000)
    assert archived.cache.fetched_bytes == 0


def test_a_second_pass_adds_nothing(archived: ArchivedStore, fs: SimulatedFileSystem) -> None:
    before = stored(fs)

    archived.store.archive_now()

    assert stored(fs) == before


def test_the_archive_survives_a_restart(archived: ArchivedStore, fs: SimulatedFileSystem) -> None:
    archived.store.close()

    again = ArchivedStore(fs)

    assert (again.log.start_offset, again.log.state.start) == (0, 12)
    assert values(again.log) == expected(0, 14)
    assert again.store.damages() == []


def test_a_store_opens_and_reads_its_own_part_without_the_network(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    archived.store.close()
    archived.objects.fail_at(1, goes_on=True)

    again = ArchivedStore(fs, objects=archived.objects)

    assert again.log.start_offset == 0
    assert values(again.log, 12) == expected(12, 14)
    with pytest.raises(OSError, match="network"):
        values(again.log, 0)


def test_the_archive_is_asked_when_the_copy_of_its_manifest_is_lost(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    archived.store.close()
    fs.remove(f"{DATA}/{TOPIC}-0/archive-manifest")

    again = ArchivedStore(fs)

    assert values(again.log) == expected(0, 14)


def test_a_damaged_copy_of_the_manifest_is_not_believed(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    archived.store.close()
    path = f"{DATA}/{TOPIC}-0/archive-manifest"
    file = fs.open_write(path)
    file.write_at(100, b"#")

    again = ArchivedStore(fs)

    assert values(again.log) == expected(0, 14)


def test_a_reader_beside_the_writer_sees_the_whole_log(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    bench = ArchivedStore(fs, data="/elsewhere")  # for its own cache and archives
    reader = ReadOnlyStore(
        [archived.store.path],
        fs=fs,
        clock=SystemClock(),
        defaults=TopicConfig(),
        archives=bench.archives,
    )
    log = reader.topic(TOPIC).partition(0)
    assert values(log) == expected(0, 14)

    archived.append(6)
    archived.archive_and_drop()

    assert values(log) == expected(0, 20)
    assert (log.start_offset, log.local_start_offset) == (0, 18)


def test_damage_of_an_archived_file_is_reported_and_never_read(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    key = next(k for k in sorted(stored(fs)) if "0000003-" in k and k.endswith(".log"))
    fs.open_write(f"{ARCHIVE}/{key}").write_at(70, b"\xff\xff")

    with pytest.raises(StorageError, match="SHA-256"):
        values(archived.log)

    assert values(archived.log, 6) == expected(6, 14)


def test_the_cache_stays_within_its_bound(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs, cache_bytes=600)
    bench.create()
    bench.append(60)
    bench.archive_and_drop()

    assert values(bench.log) == expected(0, 60)

    assert bench.cache.fetched_bytes > 1200
    assert bench.cache.size_bytes <= 600


def test_a_segment_larger_than_the_cache_can_still_be_read(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs, cache_bytes=1)
    bench.create()
    bench.append(10)
    bench.archive_and_drop()

    assert values(bench.log) == expected(0, 10)


# --- deleting -------------------------------------------------------------------------------


def test_retention_deletes_from_the_archive(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    archived.store.alter_topic(TOPIC, config={"retention.segments": 3})

    archived.log.upkeep.apply_retention(archived.clock.now_ms())
    archived.store.archive_now()

    assert archived.log.start_offset == 6
    assert values(archived.log) == expected(6, 14)
    assert not [key for key in stored(fs) if "/00000000000000000003-" in key]


def test_deleted_offsets_stay_deleted_in_the_archive(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    archived.log.delete_before(4)
    archived.store.close()

    again = ArchivedStore(fs)

    assert again.log.start_offset == 4
    assert values(again.log) == expected(4, 14)
    with pytest.raises(OffsetOutOfRangeError):
        again.log.read(3)


def test_deleting_past_the_archive_leaves_none_of_it(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    archived.log.delete_before(13)
    archived.store.archive_now()

    assert values(archived.log) == expected(13, 14)
    assert not [key for key in stored(fs) if key.endswith(".log")]


def test_nothing_is_deleted_when_the_archive_cannot_be_told(archived: ArchivedStore) -> None:
    archived.objects.fail_at(1, goes_on=True)

    with pytest.raises(OSError, match="network"):
        archived.log.delete_before(4)

    archived.objects.heal()
    assert values(archived.log) == expected(0, 14)


def test_local_copies_stay_until_they_are_archived(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    bench.create()
    bench.append(14)

    bench.log.upkeep.apply_retention(bench.clock.now_ms())

    assert bench.log.state.start == 0


def test_truncation_reaches_the_archive(fs: SimulatedFileSystem) -> None:
    bench = ArchivedStore(fs)
    bench.create(local_retention_bytes=-1)
    bench.append(14)
    bench.store.archive_now()

    bench.log.truncation.truncate_to(7)
    bench.append(7)
    bench.archive_and_drop()

    assert values(bench.log) == expected(0, 14)
    bases = [segment.base_offset for segment in bench.log.segments()]
    assert bases == sorted(set(bases))


# --- configuration --------------------------------------------------------------------------


def test_a_compacted_topic_cannot_be_archived() -> None:
    with pytest.raises(ConfigError, match="compaction rewrites segments"):
        TopicConfig.parse({"cleanup.policy": "compact", "archive.url": URL})


def test_an_archive_by_default_passes_over_compacted_topics() -> None:
    defaults = TopicConfig.parse({"archive.url": URL})

    config = TopicConfig.parse({"cleanup.policy": "compact"}, defaults=defaults)

    assert config.archive_url is None


@pytest.mark.parametrize("url", ["archive", "file://host/dir", "s3://", "s3:bucket"])
def test_a_url_that_names_no_place_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match=r"archive\.url"):
        TopicConfig.parse({"archive.url": url})


def test_without_the_archive_the_log_is_its_local_part(archived: ArchivedStore) -> None:
    archived.store.alter_topic(TOPIC, config={"archive.url": None})

    assert values(archived.log) == expected(12, 14)


def test_with_the_archive_again_it_is_whole_again(archived: ArchivedStore) -> None:
    archived.store.alter_topic(TOPIC, config={"archive.url": None})

    archived.store.alter_topic(TOPIC, config={"archive.url": URL})

    assert values(archived.log) == expected(0, 14)


def test_progress_and_the_last_error_can_be_seen(archived: ArchivedStore) -> None:
    archived.append(6)
    archived.objects.fail_at(1)

    (failed,) = archived.store.archive_now()
    (done,) = archived.store.archive_now()

    assert failed.last_error == "OSError: the network is down"
    assert failed.archived_up_to == 12
    assert done.last_error is None
    assert (done.archived_up_to, done.copied_segments, done.segment_count) == (18, 6, 6)


def test_deleted_and_created_anew_a_topic_has_an_archive_of_its_own(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    archived.store.delete_topic(TOPIC)
    archived.create()
    archived.append(7)

    archived.archive_and_drop()

    assert values(archived.log) == expected(0, 7)
    assert len(LocalObjects(fs, ARCHIVE).names(TOPIC)) == 2


# --- archives of an earlier version ----------------------------------------------------------


def make_earlier(fs: SimulatedFileSystem) -> None:
    """Turn the archive into what an earlier version wrote: an object for each file, no sums."""
    objects = LocalObjects(fs, ARCHIVE)
    key = next(key for key in stored(fs) if key.endswith("manifest.json"))
    manifest = parse_manifest(get(objects, key, limit=1 << 20))
    copies = []
    for copy in manifest.segments:
        plain = replace(
            copy, sums=None, files=tuple(replace(file, position=None) for file in copy.files)
        )
        packed = f"{manifest.prefix}/{copy.packed_name}"
        for file in copy.files:
            if file.position is not None:
                content = objects.get_range(packed, file.position, file.size)
                objects.put(f"{manifest.prefix}/{plain.object_name(file.kind)}", [content])
        objects.delete(packed)
        copies.append(plain)
    content = json.loads(render_manifest(replace(manifest, segments=tuple(copies))))["content"]
    content["version"] = 1
    body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    checksum = hashlib.sha256(body).hexdigest().encode()
    objects.put(key, [b'{"checksum":"%s","content":%s}\n' % (checksum, body)])


def test_an_archive_of_an_earlier_version_is_read_continued_and_restored(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    make_earlier(fs)
    copy = f"{archived.log.directory}/archive-manifest"
    archived.store.close()
    fs.remove(copy)
    again = ArchivedStore(fs)

    assert values(again.log) == expected(0, 14)
    assert again.log.offset_for_time(5000) == 4
    again.append(7)
    again.archive_and_drop()
    assert values(again.log) == expected(0, 21)
    kinds = {key.rpartition(".")[2] for key in stored(fs)}
    assert kinds == {"json", "log", "index", "timeindex", "snapshot", "packed"}
    restored = ArchivedStore(fs, data="/new")
    restored.store.restore_topic(TOPIC, URL)
    assert values(restored.log) == expected(0, restored.log.end_offset)
    assert restored.log.end_offset > 14


def test_damage_in_an_archive_of_an_earlier_version_is_reported(
    archived: ArchivedStore, fs: SimulatedFileSystem
) -> None:
    make_earlier(fs)
    copy = f"{archived.log.directory}/archive-manifest"
    archived.store.close()
    fs.remove(copy)
    again = ArchivedStore(fs)
    key = next(k for k in sorted(stored(fs)) if "0000003-" in k and k.endswith(".log"))
    fs.open_write(f"{ARCHIVE}/{key}").write_at(70, b"\xff\xff")

    with pytest.raises(StorageError, match="SHA-256"):
        values(again.log)
