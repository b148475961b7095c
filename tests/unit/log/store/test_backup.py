"""A copy of a live store: consistent, independent, whole or not there."""

from __future__ import annotations

import errno
import os
import random
import threading
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ConfigError, LogClosedError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.work_progress import WorkDone, WorkProgress
from cordwood.log.store.store import Store
from cordwood.security.security_state import QuotaEntity, SecurityState
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC, log_of, new_log, open_store

COPY = "/copy"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def filled(fs: SimulatedFileSystem, **config: object) -> tuple[Store, PartitionLog]:
    settings: dict[str, object] = {key.replace("_", "."): value for key, value in config.items()}
    store, log = new_log(fs, settings)
    for number in range(12):
        log.append(b"v%d" % number, key=b"k%d" % (number % 3))
        if number % 4 == 3 and number < 11:
            log.roll()
            log.sync()
    return store, log


def open_copy(fs: SimulatedFileSystem, path: str = COPY) -> PartitionLog:
    return log_of(open_store(fs, directories=(path,)))


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.read()]


def test_a_copy_opens_at_once_and_holds_the_same(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs)

    made = store.snapshot(COPY)

    copy = open_copy(fs)
    assert values(copy) == values(log)
    assert (copy.start_offset, copy.end_offset) == (0, 12)
    assert not copy.damages
    assert made.partitions == 1
    assert made.linked_bytes == sum(s.size_bytes for s in log.segments()[:-1])
    assert made.copied_bytes == log.segments()[-1].size_bytes


def test_the_two_stores_go_their_own_ways(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs)
    store.snapshot(COPY)
    copy = open_copy(fs)

    log.append(b"here")
    copy.append(b"there")
    log.delete_before(5)

    assert values(log)[-1] == b"here"
    assert values(copy)[-1] == b"there"
    assert copy.start_offset == 0
    assert copy.end_offset == 13


@pytest.mark.parametrize("whose", ["source", "copy"])
def test_truncating_one_into_a_shared_segment_leaves_the_other_alone(
    fs: SimulatedFileSystem, whose: str
) -> None:
    store, log = filled(fs)
    before = values(log)
    store.snapshot(COPY)
    copy = open_copy(fs)
    cut, other = (log, copy) if whose == "source" else (copy, log)

    cut.truncation.truncate_to(2)
    cut.append(b"instead")

    assert values(cut) == [b"v0", b"v1", b"instead"]
    assert values(other) == before


def test_a_copy_whose_last_segment_was_sealed_appends_to_one_of_its_own(
    fs: SimulatedFileSystem,
) -> None:
    store, log = filled(fs)
    log.roll()
    store.snapshot(COPY)

    copy = open_copy(fs)
    copy.append(b"there")

    assert copy.segments()[-1].base_offset == 12
    assert values(log) == [b"v%d" % n for n in range(12)]


def test_only_what_is_readable_and_durable_is_copied(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs, durability="os")
    log.append(b"unsynced")

    store.snapshot(COPY)

    assert values(open_copy(fs)) == values(log)


def test_a_copy_is_durable(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs)
    store.snapshot(COPY)
    expected = values(log)

    for seed in range(10):
        after = fs.crash(random.Random(seed))

        assert values(open_copy(after)) == expected


def test_an_interrupted_copy_is_not_mistaken_for_a_whole_one(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs)
    before = fs.calls
    store.snapshot("/first")
    steps = fs.calls - before
    expected = values(log)

    for step in range(1, steps + 1, 3):
        fs.fail_at(step, OSError(errno.EIO, "pulled"))
        path = f"/copy{step}"
        try:
            store.snapshot(path)
        except OSError:
            after = fs.crash(random.Random(step))
            if after.exists(path):
                assert values(open_copy(after, path)) == expected
        assert log.state.failure is None or "pulled" in str(log.state.failure)
        if log.state.failure is not None:
            break


def test_a_second_try_clears_what_the_first_left(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs)
    fs.make_directory(COPY + ".incomplete/events-0")
    fs.create(COPY + ".incomplete/events-0/00000000000000000000.log").close()

    store.snapshot(COPY)

    assert values(open_copy(fs)) == values(log)
    assert not fs.exists(COPY + ".incomplete")


def test_a_store_that_closes_gives_a_copy_up_and_leaves_nothing_of_it(
    fs: SimulatedFileSystem,
) -> None:
    store, _ = filled(fs)
    closer = threading.Thread(target=store.close)

    class Watched(WorkProgress):
        def add(self, count: int) -> None:
            if not closer.ident:
                closer.start()
                while not store.is_closed:
                    closer.join(0.01)

    with pytest.raises(LogClosedError):
        store.snapshot(COPY, progress=Watched())

    closer.join(60)
    assert not closer.is_alive()
    assert not fs.exists(COPY)
    assert not fs.exists(COPY + ".incomplete")


def test_whoever_waits_for_a_copy_is_told_how_far_it_is(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs)
    progress = WorkProgress()

    store.snapshot(COPY, progress=progress)

    assert progress.so_far() == WorkDone(log.size_bytes, log.size_bytes)


@pytest.mark.parametrize("path", ["/data", "/data/copy"])
def test_a_copy_goes_to_a_new_place_outside_the_store(fs: SimulatedFileSystem, path: str) -> None:
    store, _ = filled(fs)

    with pytest.raises(ConfigError):
        store.snapshot(path)


def test_an_existing_directory_is_not_touched(fs: SimulatedFileSystem) -> None:
    store, _ = filled(fs)
    fs.make_directory(COPY)

    with pytest.raises(ConfigError, match="must not exist"):
        store.snapshot(COPY)


def test_topics_their_configuration_and_groups_are_copied(fs: SimulatedFileSystem) -> None:
    store, _ = filled(fs, retention_ms="3d", key_index=True)
    store.create_topic("other", partitions=3).append(b"x", key=b"y")
    store.group("readers").commit({(TOPIC, 0): 7})
    store.maintain()

    store.snapshot(COPY)

    copy = open_store(fs, directories=(COPY,))
    assert copy.topics() == ["events", "other"]
    assert copy.cluster_id == store.cluster_id
    assert copy.topic(TOPIC).topic_id == store.topic(TOPIC).topic_id
    assert copy.topic(TOPIC).config == store.topic(TOPIC).config
    assert copy.group("readers").committed((TOPIC, 0)) == 7
    assert log_of(copy).find(b"k1") == log_of(store).find(b"k1")


def test_the_start_of_the_log_is_copied(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs)
    log.delete_before(6)

    store.snapshot(COPY)

    copy = open_copy(fs)
    assert copy.start_offset == 6
    assert values(copy) == values(log)


def test_a_copy_of_a_copy_is_a_copy(fs: SimulatedFileSystem) -> None:
    store, log = filled(fs)
    store.snapshot(COPY)
    copy = open_store(fs, directories=(COPY,))

    copy.snapshot("/again")

    assert values(open_copy(fs, "/again")) == values(log)


def test_appends_rolls_and_deletions_go_on_meanwhile(tmp_path: Path) -> None:
    stop = threading.Event()
    with cordwood.open(tmp_path / "data") as store:
        config = {"durability": "os", "internal.segment.bytes": 2000, "retention.segments": 5}
        topic = store.create_topic("t", config=config)

        def write() -> None:
            while not stop.is_set():
                topic.append(b"x" * 100)
                topic.partition(0).upkeep.apply_retention(store._clock.now_ms())

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for number in range(10):
                store.snapshot(tmp_path / f"copy{number}")
        finally:
            stop.set()
            writer.join()

    ends = []
    for number in range(10):
        with cordwood.open(tmp_path / f"copy{number}") as copy:
            assert copy.damages() == []
            log = copy.topic("t").partition(0)
            offsets = [record.offset for record in log.read()]
            assert offsets == list(range(log.start_offset, log.end_offset))
            ends.append(log.end_offset)
    assert ends == sorted(ends)


def test_sealed_segments_are_shared_on_a_real_file_system(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("t")
        topic.append(b"v")
        topic.partition(0).roll()
        store.snapshot(tmp_path / "copy")

    name = f"t-0/{0:020d}.log"
    assert os.path.samefile(tmp_path / "data" / name, tmp_path / "copy" / name)


def test_no_committed_offset_of_a_copy_is_past_its_records(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, log = filled(fs, durability="os")
    group = store.group("billing")
    group.commit({(TOPIC, 0): log.end_offset})
    sync, mine = PartitionLog.sync, threading.current_thread()

    def sync_and_go_on(self: PartitionLog) -> None:
        """Right after each sync a reader takes one more record and commits behind it."""
        sync(self)
        if threading.current_thread() is not mine:
            return  # of another store in this process
        end = log.append(b"late").offset + 1
        group.commit({(TOPIC, 0): end})
        sync(log_of(store, "__consumer_offsets", 0))

    monkeypatch.setattr(PartitionLog, "sync", sync_and_go_on)
    store.snapshot(COPY)
    monkeypatch.undo()

    copy = open_store(fs, directories=(COPY,))
    committed = copy.group("billing").committed(TOPIC, 0)
    assert committed is not None
    assert committed <= log_of(copy).end_offset


# --- what lies beside the segments -------------------------------------------------------------

COMPACTED: dict[str, object] = {
    "segment_records": 4,
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": 0,
    "internal_segment_bytes": 400,
    "file_delete_delay_ms": 0,
}


def compacted(fs: SimulatedFileSystem) -> tuple[Store, PartitionLog]:
    store, log = filled(fs, **COMPACTED)
    for number in range(12):
        log.append(b"v%d" % number, key=b"other%d" % number)
    log.roll()
    store.compact(TOPIC, force=True)
    return store, log


def lose(fs: SimulatedFileSystem, home: str, base: int) -> None:
    for name in list(fs.names(home)):
        if name.startswith(f"{base:020}."):
            fs.remove(f"{home}/{name}")


def test_a_copy_of_a_compacted_log_knows_its_segments(fs: SimulatedFileSystem) -> None:
    store, log = compacted(fs)
    store.snapshot(COPY)
    with open_store(fs.kill(), directories=(COPY,)) as copy:
        assert copy.damages() == []
        assert values(log_of(copy)) == values(log)
    bases = [segment.base_offset for segment in log.state.segments]
    assert len(bases) > 4
    for base, following in list(pairwise(bases))[1:]:
        lost = fs.kill()
        lose(lost, f"{COPY}/{TOPIC}-0", base)

        with open_store(lost, directories=(COPY,)) as copy:
            assert [damage.next_offset for damage in copy.damages()] == [following], base


def test_a_copy_of_a_log_that_lost_a_segment_has_lost_it_too(fs: SimulatedFileSystem) -> None:
    store, log = compacted(fs)
    base, following = (segment.base_offset for segment in list(log.state.segments)[1:3])
    store.close()
    lose(fs, f"/data/{TOPIC}-0", base)
    with open_store(fs) as store:
        store.snapshot(COPY)

    with open_store(fs, directories=(COPY,)) as copy:
        assert [(d.first_offset, d.next_offset) for d in copy.damages()] == [(base, following)]


def test_a_copy_has_the_settings_that_were_saved(fs: SimulatedFileSystem) -> None:
    store, _ = filled(fs)
    store.saved_configs.put("group", "billing", {"consumer.session.timeout.ms": "50000"})

    store.snapshot(COPY)

    with open_store(fs, directories=(COPY,)) as copy:
        saved = copy.saved_configs.of("group", "billing")
        assert saved == {"consumer.session.timeout.ms": "50000"}


def limit_alice(state: SecurityState) -> SecurityState:
    return replace(state, quotas={QuotaEntity(user="alice"): {"producer_byte_rate": 1000.0}})


def test_a_copy_has_users_and_rules_only_if_asked_for(fs: SimulatedFileSystem) -> None:
    store, _ = filled(fs)
    security = store.open_security()
    security.change(limit_alice)

    store.snapshot(COPY)
    store.snapshot("/whole", include_security=True)

    assert "cordwood-security" not in fs.names(COPY)
    with open_store(fs, directories=("/whole",)) as copy:
        opened = copy.open_security()
        assert opened.state == security.state
        assert opened.secret == security.secret


def test_a_store_without_users_has_none_to_copy(fs: SimulatedFileSystem) -> None:
    store, _ = filled(fs)

    store.snapshot(COPY, include_security=True)

    assert "cordwood-security" not in fs.names(COPY)
    assert "cordwood-configs" not in fs.names(COPY)


def test_the_file_of_users_is_private_in_the_copy_too(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("orders").append(b"v")
        store.open_security().change(limit_alice)
        store.snapshot(tmp_path / "copy", include_security=True)

    assert (tmp_path / "copy" / "cordwood-security").stat().st_mode & 0o777 == 0o600
