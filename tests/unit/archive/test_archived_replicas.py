"""In a cluster, the leader of a partition archives it, and nobody who was deposed changes it."""

from __future__ import annotations

import pytest

from cordwood.archive.cache.segment_cache import SegmentCache
from cordwood.archive.objects.object_store import LocalObjects
from cordwood.archive.store_archives import StoreArchives
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.cluster_mark import CLUSTER_MARK
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.storage.files import replace_file
from fakes.archived_replicas import ArchivedReplica
from fakes.archived_store import ARCHIVE, expected, stored
from fakes.failing_objects import ProcessKilled
from fakes.simulated_fs import SimulatedFileSystem


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def two_replicas(fs: SimulatedFileSystem) -> tuple[ArchivedReplica, ArchivedReplica]:
    """The first one leads in epoch 1 and has archived [0, 9) of 10 records; both have all.

    Segments of the second one end at other offsets.
    """
    one, two = ArchivedReplica(fs, 1, segment_records=3), ArchivedReplica(fs, 2, segment_records=4)
    one.lead(1)
    one.append(10)
    two.follow(one, 1)
    assert one.run() is None
    return one, two


def assert_sound(fs: SimulatedFileSystem, replica: ArchivedReplica) -> None:
    """The manifest names objects that exist, and no others do."""
    manifest = replica.manifest
    named = {
        f"{manifest.prefix}/{name}" for copy in manifest.segments for name in copy.object_names()
    }
    existing = {key for key in stored(fs) if not key.endswith(".json")}
    assert named == existing


def test_the_leader_archives_and_its_epoch_is_in_the_manifest(fs: SimulatedFileSystem) -> None:
    one, _ = two_replicas(fs)

    manifest = one.manifest

    assert (manifest.leader_epoch, manifest.start, manifest.end) == (1, 0, 9)
    assert manifest.owner.startswith("cluster ")


def test_a_follower_copies_nothing_and_learns_what_is_archived(fs: SimulatedFileSystem) -> None:
    _, two = two_replicas(fs)
    before = stored(fs)

    assert two.run() is None

    assert stored(fs) == before
    assert two.archive.manifest.end == 9


def test_a_follower_drops_only_what_is_archived(fs: SimulatedFileSystem) -> None:
    one, two = two_replicas(fs)
    two.run()
    one.append(5)
    two.follow(one, 1)
    assert one.run() is None
    two.drop_local()
    assert two.log.state.start == 8  # it knows of [0, 9)
    two.run()

    two.drop_local()

    assert (two.log.state.start, two.log.start_offset) == (12, 0)
    assert two.values() == expected(0, 15)
    assert one.manifest.start == 0


def test_the_next_leader_continues_inside_of_its_segment(fs: SimulatedFileSystem) -> None:
    one, two = two_replicas(fs)
    two.run()
    two.drop_local()
    two.lead(2)
    two.append(6)
    one.follow(two, 2)

    assert two.run() is None
    two.drop_local()

    manifest = two.manifest
    assert (manifest.leader_epoch, manifest.end) == (2, 12)
    assert [copy.base_offset for copy in manifest.segments] == [0, 3, 6, 9]
    assert two.log.state.start == 12
    assert two.values() == expected(0, 16)
    assert_sound(fs, two)


def test_reads_of_archived_offsets_go_on_after_a_failover(fs: SimulatedFileSystem) -> None:
    one, two = two_replicas(fs)
    one.drop_local()
    two.run()
    two.drop_local()

    two.lead(2)

    assert two.values() == expected(0, 10)


def test_a_follower_that_starts_late_reads_the_archive(fs: SimulatedFileSystem) -> None:
    one, _ = two_replicas(fs)
    one.drop_local()
    late = ArchivedReplica(fs, 3, segment_records=5)

    late.follow(one, 1)

    assert (late.log.state.start, late.log.start_offset) == (9, 0)
    assert late.values() == expected(0, 10)


def test_a_deposed_leader_changes_nothing_after_the_next_one_did(fs: SimulatedFileSystem) -> None:
    one, two = two_replicas(fs)
    two.lead(2)
    two.append(6)
    two.log.replica.raise_high_watermark(two.log.end_offset)
    assert two.run() is None
    before, objects = two.manifest, stored(fs)
    one.append(5, prefix=b"lost")  # it does not know that it leads no more
    one.log.replica.raise_high_watermark(one.log.end_offset)

    error = one.run()

    assert error is not None
    assert "the leadership of epoch 1 is over" in error
    assert (two.manifest, stored(fs)) == (before, objects)


def test_of_two_leaders_that_put_at_the_same_time_one_is_refused(fs: SimulatedFileSystem) -> None:
    one, two = two_replicas(fs)
    one.append(3)
    two.follow(one, 1)
    two.lead(2)
    inner = one.objects.inner
    assert isinstance(inner, LocalObjects)

    class Between(LocalObjects):
        """The next leader changes the manifest between the read and the put of the old one."""

        def put_if(self, key: str, data: bytes, *, replaces: str | None) -> str:
            assert two.run() is None
            return super().put_if(key, data, replaces=replaces)

    one.objects.inner = Between(fs, ARCHIVE)

    error = one.run()

    assert error is not None
    assert "changed by another broker" in error
    assert two.manifest.leader_epoch == 2
    assert two.values() == expected(0, 13)


def test_a_deposed_leader_removes_no_objects_of_the_next_one(fs: SimulatedFileSystem) -> None:
    """Whatever it does between two requests of the next leader."""
    number = 0
    while True:
        number += 1
        fs = SimulatedFileSystem()
        one, two = two_replicas(fs)
        one.append(3)
        two.follow(one, 1)
        two.lead(2)
        two.objects.fail_at(number, goes_on=True)
        is_over = two.run() is None
        one.archive.abandon_copy("none")  # so that it looks for garbage
        one.append(4)
        one.log.replica.raise_high_watermark(one.log.end_offset)
        one.run()
        two.objects.heal()

        assert two.run() is None
        two.drop_local()

        assert two.values() == expected(0, 13), number
        assert_sound(fs, two)
        if is_over:
            break
    assert number > 8


def test_the_next_leader_removes_what_a_deposed_one_left(fs: SimulatedFileSystem) -> None:
    one, two = two_replicas(fs)
    one.append(3)
    two.follow(one, 1)
    one.objects.fail_at(5, goes_on=True)
    one.run()
    two.lead(2)

    assert two.run() is None

    assert_sound(fs, two)


def test_an_unclean_election_cuts_off_what_the_new_leader_does_not_have(
    fs: SimulatedFileSystem,
) -> None:
    one, two = two_replicas(fs)
    one.append(5)
    one.log.replica.raise_high_watermark(one.log.end_offset)  # two was not in sync
    assert one.run() is None
    assert one.manifest.end == 12
    two.lead(2)
    two.append(4, prefix=b"w")
    two.log.replica.raise_high_watermark(two.log.end_offset)

    assert two.run() is None

    manifest = two.manifest
    assert manifest.end == 12  # [8, 12) of two, in two pieces
    assert two.values() == [*expected(0, 10), *(b"w%d" % n for n in range(10, 14))]
    assert_sound(fs, two)


def test_retention_of_the_whole_log_is_up_to_the_leader(fs: SimulatedFileSystem) -> None:
    config: dict[str, object] = {"retention.ms": 1000}
    one, two = ArchivedReplica(fs, 1, config=config), ArchivedReplica(fs, 2, config=config)
    one.lead(1)
    one.append(10)
    two.follow(one, 1)
    assert one.run() is None
    two.run()
    for each in (one, two):
        each.clock.advance(10**13)

    two.drop_local()
    assert (two.log.start_offset, one.manifest.start) == (0, 0)
    one.drop_local()
    two.run()
    two.follow(one, 1)

    assert one.manifest.start == one.log.start_offset == two.log.start_offset >= 9


@pytest.mark.parametrize("late", [False, True], ids=["before", "after"])
def test_a_leader_killed_at_any_request_leaves_an_archive_for_the_next(late: bool) -> None:
    """Whatever the leader had done, the next one has every record, and no garbage is left."""
    number = 0
    while True:
        number += 1
        fs = SimulatedFileSystem()
        one, two = two_replicas(fs)
        one.append(5)
        two.follow(one, 1)
        one.objects.fail_at(number, late=late, goes_on=True, error=ProcessKilled)
        try:
            one.run()
        except ProcessKilled:
            is_over = False
        else:
            is_over = True
        two.run()
        two.drop_local()
        two.lead(2)
        two.append(6)
        two.log.replica.raise_high_watermark(two.log.end_offset)

        assert two.run() is None
        two.drop_local()

        assert two.values() == expected(0, 21), number
        assert two.manifest.leader_epoch == 2
        assert two.manifest.end == 20
        assert_sound(fs, two)
        if is_over:
            break
    assert number > 8


def test_a_reader_of_a_replica_finds_its_archive_in_order(fs: SimulatedFileSystem) -> None:
    one, _ = two_replicas(fs)
    replace_file(fs, f"{one.data}/{CLUSTER_MARK}", b"")
    archives = StoreArchives(
        fs=fs,
        clock=one.clock,
        cache=SegmentCache(fs, "/reader"),
        open_objects=lambda _url, _fs: one.objects,
    )

    with ReadOnlyStore(
        [one.data], fs=fs, clock=one.clock, defaults=TopicConfig(), archives=archives
    ) as store:
        [status] = store.archive_status()

    assert (status.last_error, status.archived_up_to) == (None, 9)
