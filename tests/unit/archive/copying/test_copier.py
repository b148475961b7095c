"""Segments get into the archive whole, once, and no failure leaves anything in between."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from cordwood.archive.manifests.manifest import parse_manifest
from cordwood.archive.objects.object_store import LocalObjects, get
from cordwood.archive.opened_archive import OpenedArchive
from cordwood.errors import StorageError
from fakes.archived_store import ARCHIVE, ArchivedStore, expected, stored, values
from fakes.failing_objects import FailingObjects, ProcessKilled
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC


def ready(fs: SimulatedFileSystem, objects: FailingObjects | None = None) -> ArchivedStore:
    """Three sealed segments, nothing archived yet."""
    bench = ArchivedStore(fs, objects=objects)
    bench.create()
    bench.append(10)
    return bench


def named_by_manifests(fs: SimulatedFileSystem) -> set[str]:
    objects = LocalObjects(fs, ARCHIVE)
    named: set[str] = set()
    for key in stored(fs):
        if key.endswith("manifest.json"):
            manifest = parse_manifest(get(objects, key, limit=1 << 20))
            named |= {
                f"{manifest.prefix}/{copy.object_name(file.kind)}"
                for copy in manifest.segments
                for file in copy.files
            }
    return named


def files(fs: SimulatedFileSystem) -> set[str]:
    return {key for key in stored(fs) if not key.endswith(".json")}


def calls_of_a_pass() -> int:
    bench = ready(SimulatedFileSystem())
    before = bench.objects.calls
    bench.store.archive_now()
    return bench.objects.calls - before


CALLS = calls_of_a_pass()


def test_the_active_segment_is_not_archived() -> None:
    bench = ready(SimulatedFileSystem())

    (status,) = bench.store.archive_now()

    assert (status.archived_up_to, status.segment_count) == (9, 3)


def test_a_segment_waits_until_its_last_append_is_old_enough() -> None:
    fs = SimulatedFileSystem()
    bench = ArchivedStore(fs)
    fs.clock = bench.clock
    bench.create(archive_after_ms=60_000)
    bench.append(6)
    bench.clock.advance(50_000)
    bench.append(4)
    bench.clock.advance(10_000)

    (status,) = bench.store.archive_now()

    assert status.archived_up_to == 6


def test_every_file_of_a_segment_is_archived_with_it() -> None:
    fs = SimulatedFileSystem()
    bench = ready(fs)

    bench.store.archive_now()

    kinds = sorted(key.rpartition(".")[2] for key in files(fs))
    assert kinds == sorted(["log", "packed"] * 3)
    manifests = [key for key in stored(fs) if key.endswith("manifest.json")]
    manifest = parse_manifest(get(LocalObjects(fs, ARCHIVE), manifests[0], limit=1 << 20))
    assert [[file.kind.value for file in copy.files] for copy in manifest.segments] == [
        ["log", "index", "timeindex", "snapshot"]
    ] * 3
    assert files(fs) == named_by_manifests(fs)


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_a_failure_at_any_call_leaves_the_old_or_the_new_and_the_next_pass_finishes(
    number: int, late: bool
) -> None:
    fs = SimulatedFileSystem()
    bench = ready(fs)
    bench.objects.fail_at(number, late=late)

    bench.store.archive_now()

    assert named_by_manifests(fs) <= files(fs), "a manifest never names what is not there"
    bench.log.upkeep.apply_retention(bench.clock.now_ms())
    assert values(bench.log) == expected(0, 10), "nothing local went that is not archived"
    bench.archive_and_drop()
    assert values(bench.log) == expected(0, 10)
    assert bench.log.state.start == 9
    bench.store.archive_now()
    assert files(fs) == named_by_manifests(fs), "what an interrupted copy left is swept away"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("number", range(1, CALLS + 1))
def test_a_killed_copier_is_finished_by_the_next_process(number: int, late: bool) -> None:
    fs = SimulatedFileSystem()
    bench = ready(fs)
    bench.objects.fail_at(number, late=late, error=ProcessKilled)

    with suppress(ProcessKilled):
        bench.store.archive_now()
    left = fs.kill()

    assert named_by_manifests(left) <= files(left)
    again = ArchivedStore(left)
    assert values(again.log) == expected(0, 10)
    again.archive_and_drop()
    assert values(again.log) == expected(0, 10)
    assert files(left) == named_by_manifests(left)


@pytest.mark.parametrize("seed", range(40))
def test_a_power_cut_during_a_pass_loses_nothing(seed: int) -> None:
    rng = random.Random(seed)
    fs = SimulatedFileSystem()
    bench = ready(fs)
    cut_at = fs.calls + rng.randrange(1, 400)
    left: list[SimulatedFileSystem] = []

    def watch(_operation: str, _path: str) -> None:
        if fs.calls >= cut_at and not left:
            fs.watch = None
            left.append(fs.crash(rng))

    fs.watch = watch
    bench.archive_and_drop()
    bench.archive_and_drop()
    after = left[0] if left else fs.crash(rng)

    again = ArchivedStore(after)
    assert values(again.log) == expected(0, 10)
    again.archive_and_drop()
    assert values(again.log) == expected(0, 10)
    assert named_by_manifests(after) == files(after)


def test_what_does_not_read_back_as_it_was_put_is_not_recorded() -> None:
    fs = SimulatedFileSystem()

    class Rotting(LocalObjects):
        def put(self, key: str, pieces: object) -> None:
            super().put(key, pieces)  # type: ignore[arg-type]
            if key.endswith(".log"):
                fs.open_write(f"{ARCHIVE}/{key}").write_at(65, b"\x00\x01\x02\x03")

    bench = ready(fs, FailingObjects(Rotting(fs, ARCHIVE)))

    (status,) = bench.store.archive_now()

    assert status.last_error is not None
    assert "read back" in status.last_error
    assert status.archived_up_to == 0
    assert named_by_manifests(fs) == set()


def test_a_sweep_leaves_a_copy_alone_that_is_under_way() -> None:
    fs = SimulatedFileSystem()
    bench = ready(fs)
    archive = bench.archives.archive_of(bench.log, bench.store.topic(TOPIC).topic_id)
    assert archive is not None
    archive.begin_copy("abc123")
    key = f"{archive.prefix}/00000000000000000000-abc123.log"
    bench.objects.put(key, [b"half a segm"])

    archive.sweep()
    during = key in stored(fs)
    archive.abandon_copy("abc123")
    archive.sweep()

    assert during
    assert key not in stored(fs)


def test_another_store_may_not_write_the_archive() -> None:
    fs = SimulatedFileSystem()
    bench = ready(fs)
    bench.store.archive_now()
    thief = ArchivedStore(fs, data="/other")

    thief.store.restore_topic(TOPIC, "file:///archive", take_over=True)
    bench.append(3)
    (status,) = bench.store.archive_now()

    assert status.last_error is not None
    assert "belongs to store" in status.last_error
    with pytest.raises(StorageError, match="belongs to store"):
        bench.log.delete_before(2)


def test_an_archive_ahead_of_its_log_is_reported() -> None:
    fs = SimulatedFileSystem()
    bench = ready(fs)
    bench.store.archive_now()
    bench.objects.fail_at(1, goes_on=True)
    archive, bench.log.archive._join = bench.log.archive._join, None
    bench.log.truncation.truncate_to(4)
    bench.log.archive._join = archive
    bench.objects.heal()

    (status,) = bench.store.archive_now()

    assert status.last_error is not None
    assert "the log lost records" in status.last_error


def test_a_segment_that_grew_after_it_was_archived_is_copied_anew() -> None:
    fs = SimulatedFileSystem()
    bench = ArchivedStore(fs)
    bench.create(local_retention_bytes=-1)
    bench.append(4)
    bench.log.roll()
    bench.store.archive_now()
    archive, bench.log.archive._join = bench.log.archive._join, None
    bench.log.truncation.truncate_to(4)  # the segment before the empty one is active again
    bench.log.truncation.truncate_to(3)
    bench.log.archive._join = archive
    bench.append(7)

    bench.archive_and_drop()

    assert bench.log.archive.archived_up_to == 9
    assert values(bench.log) == expected(0, 10)
    assert files(fs) == named_by_manifests(fs)


def test_after_a_gap_the_archive_begins_anew() -> None:
    fs = SimulatedFileSystem()
    bench = ready(fs)
    bench.archive_and_drop()
    bench.store.alter_topic(TOPIC, config={"archive.url": None})
    bench.append(8)
    bench.log.delete_before(15)
    bench.store.alter_topic(TOPIC, config={"archive.url": "file:///archive"})

    bench.append(4)
    bench.archive_and_drop()

    assert bench.log.start_offset == 15
    assert values(bench.log) == expected(15, 22)
    assert files(fs) == named_by_manifests(fs)


def test_an_archive_is_read_without_its_store() -> None:
    fs = SimulatedFileSystem()
    bench = ready(fs)
    bench.store.archive_now()

    with OpenedArchive("file:///archive", cache_bytes=1 << 20, fs=fs) as archive:
        log = archive.topic(TOPIC).partition(0)

        assert archive.topics() == [TOPIC]
        assert (log.start_offset, log.end_offset) == (0, 9)
        assert values(log) == expected(0, 9)
