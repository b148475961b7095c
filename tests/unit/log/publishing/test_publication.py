"""A publication is all there or not at all, once, whatever happens while it is made."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from cordwood.errors import (
    ConfigError,
    LogFailedError,
    LogHeldError,
    RecordTooLargeError,
    StorageError,
    UnknownTopicError,
)
from cordwood.log.publishing import publication_ledger
from cordwood.log.publishing.consistent_ends import whole_ends
from cordwood.log.publishing.publication import Part, PublicationId
from cordwood.log.publishing.publication_ledger import Place
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
from crash.power_cut import CHANGING
from fakes.client_batches import client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_file import SimulatedFile
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, log_of, open_store

SMALL = {"internal.segment.bytes": 600, "index.interval.bytes": 100}


Pairs = list[tuple[bytes | None, bytes | None]]


FIRST: dict[tuple[str, int], Pairs] = {
    ("orders", 0): [(b"a", b"1"), (b"b", b"2")],
    ("orders", 1): [(b"c", b"3")],
}


SECOND: dict[tuple[str, int], Pairs] = {
    ("orders", 0): [(b"k", b"%d" % n * 30) for n in range(20)],
    ("audit", 0): [(None, b"x" * 200)] * 5,
}


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock())


def store_with_topics(fs: SimulatedFileSystem, **config: object) -> Store:
    store = open_store(fs)
    store.create_topic("orders", partitions=2, config={**SMALL, **config})
    store.create_topic("audit", config={**SMALL, **config})
    return store


def values(log: LogReader) -> list[bytes | None]:
    return [record.value for record in log.read(log.start_offset)]


def contents(store: Store) -> dict[tuple[str, int], list[bytes | None]]:
    return {
        (name, log.partition): values(log)
        for name in store.topics()
        for log in store.topic(name).partitions
    }


def reader(fs: SimulatedFileSystem) -> ReadOnlyStore:
    return ReadOnlyStore([DATA], fs=fs, clock=fs.clock, defaults=TopicConfig())


# --- what it does --------------------------------------------------------------------------------


def test_records_of_all_partitions_are_there_at_their_offsets(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    log_of(store, "orders", 0).append(b"0")

    published = store.publish("etl", 0, FIRST)

    assert published.offsets == {("orders", 0): (1, 3), ("orders", 1): (0, 1)}
    assert contents(store) == {
        ("orders", 0): [b"0", b"1", b"2"],
        ("orders", 1): [b"3"],
        ("audit", 0): [],
    }


def test_what_was_published_can_be_read_elsewhere_and_is_durable(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)

    store.publish("etl", 0, FIRST)

    with reader(fs) as beside:
        assert values(beside.topic("orders").partition(0)) == [b"1", b"2"]
    again = open_store(fs.crash(Random(1)))
    assert contents(again)["orders", 0] == [b"1", b"2"]


@pytest.mark.parametrize("number", [0, 7, 6])
def test_a_number_that_is_not_higher_than_the_last_is_not_published_again(
    fs: SimulatedFileSystem, number: int
) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 7, FIRST)

    again = store.publish("etl", number, SECOND)

    assert again.is_repeated
    assert contents(store)["orders", 0] == [b"1", b"2"]
    assert store.publisher.last_of("etl") == 7


def test_numbers_of_applications_have_nothing_to_do_with_each_other(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 7, FIRST)

    other = store.publish("cdc", 0, FIRST)

    assert not other.is_repeated
    assert store.publisher.applications() == {"etl": 7, "cdc": 0}


def test_what_was_published_is_known_after_a_restart(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 3, FIRST)
    store.close()

    again = open_store(fs)

    assert again.publish("etl", 3, FIRST).is_repeated
    assert not again.publish("etl", 4, FIRST).is_repeated


def test_an_application_that_is_forgotten_may_publish_its_numbers_anew(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 3, FIRST)

    assert store.publisher.forget("etl")
    assert not store.publisher.forget("etl")

    assert not store.publish("etl", 0, FIRST).is_repeated


def test_a_publication_without_records_counts_too(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)

    store.publish("etl", 5, {("orders", 0): []})

    assert store.publisher.last_of("etl") == 5
    assert contents(store)["orders", 0] == []


@pytest.mark.parametrize("durability", ["disk", "os"])
def test_several_segments_are_filled(fs: SimulatedFileSystem, durability: str) -> None:
    store = store_with_topics(fs, durability=durability)

    store.publish("etl", 0, SECOND)

    log = log_of(store, "audit")
    assert len(log.segments()) > 1
    assert values(log) == [b"x" * 200] * 5
    assert log.state.durable == log.high_watermark == log.end_offset == 5


def test_log_append_time_is_that_of_the_publication(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs, **{"message.timestamp.type": "LogAppendTime"})

    store.publish("etl", 0, FIRST)

    [first, _] = log_of(store, "orders").read(0)
    assert first.timestamp_ms == fs.clock.now_ms()


# --- what it refuses -----------------------------------------------------------------------------


def test_a_topic_that_is_not_there_is_refused_before_anything_is_written(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)

    with pytest.raises(UnknownTopicError):
        store.publish("etl", 0, {**FIRST, ("nowhere", 0): [(b"a", b"1")]})

    assert contents(store)["orders", 0] == []
    assert store.publisher.last_of("etl") is None


@pytest.mark.parametrize(("application", "number"), [("", 0), ("x" * 1001, 0), ("etl", -1)])
def test_an_id_that_cannot_be_one_is_refused(
    fs: SimulatedFileSystem, application: str, number: int
) -> None:
    store = store_with_topics(fs)

    with pytest.raises(ConfigError):
        store.publish(application, number, FIRST)


def test_internal_topics_are_not_published_to(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    store.group("g").commit({("orders", 0): 1})

    with pytest.raises(ConfigError, match="internal"):
        store.publish("etl", 0, {("__consumer_offsets", 0): [(b"a", b"1")]})


def test_no_more_applications_are_taken_in_than_can_be_remembered(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication_ledger, "APPLICATIONS_MAX", 2)
    store = store_with_topics(fs)
    store.publish("one", 0, FIRST)
    store.publish("two", 0, FIRST)

    with pytest.raises(Exception, match=r"publisher\.forget"):
        store.publish("three", 0, FIRST)

    store.publish("two", 1, FIRST)


def test_a_record_that_is_too_large_leaves_nothing_of_the_publication(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs, **{"max.message.bytes": 500})
    store.publish("etl", 0, FIRST)
    before = contents(store)

    with pytest.raises(RecordTooLargeError):
        store.publish("etl", 1, {**SECOND, ("orders", 1): [(b"a", b"x" * 1000)]})

    assert contents(store) == before
    assert store.publisher.last_of("etl") == 0
    log_of(store, "orders", 0).append(b"next")
    assert contents(open_store(fs.crash(Random(1))))["orders", 0] == [b"1", b"2", b"next"]


def test_a_batch_with_a_wrong_checksum_leaves_nothing_of_the_publication(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    good, bad = client_batch(b"good"), client_batch(b"bad")
    bad[-3] ^= 1
    parts = [
        Part(
            log=log,
            place=Place.of(store.topic(log.topic), log.partition),
            batches=lambda batch=batch: [batch],  # type: ignore[misc]
            size=len(batch),
        )
        for log, batch in ((log_of(store, "orders"), good), (log_of(store, "audit"), bad))
    ]

    with pytest.raises(Exception, match="checksum"):
        store.publisher.publish(PublicationId(application="etl", number=0), parts)

    assert not any(contents(store).values())
    store.publish("etl", 0, FIRST)


# --- others meanwhile ----------------------------------------------------------------------------


def test_nobody_sees_a_part_before_all_of_it_is_durable(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 0, FIRST)
    assert len(store.topic("orders").partitions + store.topic("audit").partitions) == 3
    seen: set[tuple[int, ...]] = set()

    def look(operation: str, path: str) -> None:
        if operation not in CHANGING or path.endswith("high-watermark"):
            return
        fs.watch = None
        with reader(fs) as beside:
            ends = whole_ends(beside, ["orders", "audit"], fs=fs)
        seen.add(tuple(ends.values()))
        assert all(
            log.high_watermark == ends[log.topic, log.partition]
            for name in ("orders", "audit")
            for log in store.topic(name).partitions
        )
        fs.watch = look

    fs.watch = look
    store.publish("etl", 1, SECOND)
    fs.watch = None

    assert seen == {(2, 1, 0)}
    with reader(fs) as beside:
        assert list(whole_ends(beside, ["orders", "audit"], fs=fs).values()) == [22, 1, 5]


def test_appends_wait_for_the_end_of_a_publication(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    log = log_of(store, "orders", 0)
    log.publication.begin()
    begun, offsets = threading.Event(), []

    def append() -> None:
        begun.set()
        offsets.append(log.append_many([(None, b"late"), (None, b"later")]).first_offset)

    thread = threading.Thread(target=append)
    thread.start()
    begun.wait(60)
    assert not offsets
    log.publication.release()
    thread.join(60)

    assert offsets == [0]


def test_single_appends_wait_for_the_end_of_a_publication(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    log = log_of(store, "orders", 0)
    log.publication.begin()
    appended: list[int] = []
    thread = threading.Thread(target=lambda: appended.append(log.append(b"late").offset))

    thread.start()
    log.publication.release()
    thread.join(60)

    assert appended == [0]


def test_an_append_that_is_not_to_wait_is_told_to_come_again(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    log = log_of(store, "orders", 0)
    log.publication.begin()

    with pytest.raises(LogHeldError, match="orders-0"):
        log.batches.append_batch(client_batch(b"now"), wait=False)

    log.publication.release()
    assert log.batches.append_batch(client_batch(b"then"), wait=False).base_offset == 0


def test_a_snapshot_knows_what_was_published(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 4, FIRST)

    store.snapshot("/copy")

    copy = open_store(fs, directories=("/copy",))
    assert copy.publish("etl", 4, FIRST).is_repeated
    assert contents(copy)["orders", 0] == [b"1", b"2"]


# --- crashes -------------------------------------------------------------------------------------


def crashes_while(
    fs: SimulatedFileSystem, work: Callable[[], object], leave: Callable[[], SimulatedFileSystem]
) -> list[SimulatedFileSystem]:
    """What a crash leaves before each change that `work` makes to the disk, and after it."""
    left = []
    fs.watch = lambda operation, _path: left.append(leave()) if operation in CHANGING else None
    work()
    fs.watch = None
    return [*left, leave()]


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("durability", ["disk", "os"])
def test_a_crash_at_any_step_leaves_all_or_nothing_and_a_replay_leaves_it_once(
    fs: SimulatedFileSystem, durability: str, is_power_cut: bool
) -> None:
    store = store_with_topics(fs, durability=durability)
    store.publish("etl", 0, FIRST)
    for log in (log_of(store, "orders", 0), log_of(store, "audit")):
        log.append(b"before")
        log.sync()
    before = contents(store)
    rng = Random(7)

    left = crashes_while(
        fs,
        lambda: store.publish("etl", 1, SECOND),
        (lambda: fs.crash(rng)) if is_power_cut else fs.kill,
    )

    after = contents(store)
    outcomes = set()
    for crashed in left:
        again = open_store(crashed)
        found = contents(again)
        assert found in (before, after)
        assert again.publisher.last_of("etl") == (1 if found == after else 0)
        assert not again.damages()
        outcomes.add(found == after)
        log_of(again, "orders", 1).append(b"between")
        again.publish("etl", 1, SECOND)
        assert contents(again) == {**after, ("orders", 1): [*after["orders", 1], b"between"]}
    assert outcomes == {True, False}


def test_a_crash_while_the_cut_is_made_leaves_it_to_the_next_start(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 0, FIRST)
    before = contents(store)
    left = crashes_while(fs, lambda: store.publish("etl", 1, SECOND), fs.kill)
    most = max(left[:-1], key=lambda crashed: bool(cuts(crashed)) and crashed._disk.used_bytes())
    rng = Random(3)

    again = crashes_while(most, lambda: open_store(most), lambda: most.crash(rng))

    assert cuts(most) == {}
    for crashed in again:
        assert contents(open_store(crashed)) == before


def cuts(fs: SimulatedFileSystem) -> dict[publication_ledger.Place, int]:
    return dict(publication_ledger.read_publications(fs, [DATA]).cuts)


@pytest.mark.parametrize("number", range(1, 60))
def test_a_disk_that_fails_once_leaves_all_or_nothing(fs: SimulatedFileSystem, number: int) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 0, FIRST)
    before = contents(store)
    fs.fail_at(number, OSError(errno.EIO, os.strerror(errno.EIO)))

    try:
        store.publish("etl", 1, SECOND)
        is_published = True
    except (OSError, StorageError):
        is_published = False

    fs.clear_faults()
    after = contents(open_store(fs.kill()))
    assert is_published or after == before or after["orders", 0] != before["orders", 0]
    for log in (log_of(store, "orders", 0), log_of(store, "audit")):
        with contextlib.suppress(LogFailedError):  # the disk of the whole directory may be failing
            log.append(b"behind")
    for crashed in (fs.kill(), fs.crash(Random(number))):
        again = open_store(crashed)
        again.publish("etl", 1, SECOND)
        found = contents(again)
        assert [v for v in found["orders", 0] if v != b"behind"] == [
            *(b"1", b"2"),
            *(value for _, value in SECOND["orders", 0]),
        ]
        assert [v for v in found["audit", 0] if v != b"behind"] == [b"x" * 200] * 5
        assert found["orders", 0].count(b"behind") <= 1


def test_a_log_that_cannot_be_taken_back_is_cut_when_it_is_reopened(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    fs.fail_next("sync", OSError(errno.EPERM, "gone"), path_ends="audit-0/00000000000000000000.log")

    with pytest.raises(LogFailedError):
        store.publish("etl", 0, {("audit", 0): [(b"a", b"1")], ("orders", 0): [(b"b", b"2")]})

    log_of(store, "orders", 0).append(b"goes on")
    with pytest.raises(LogFailedError):
        store.publish("etl", 0, {("audit", 0): [(b"a", b"1")]})
    again = open_store(fs.kill())
    assert contents(again) == {
        ("audit", 0): [],
        ("orders", 0): [b"goes on"],
        ("orders", 1): [],
    }
    assert cuts(fs) != {}


def test_the_durable_mark_of_an_undecided_publication_stays_below_its_batches(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    log = log_of(store, "orders", 0)
    log.append(b"before")
    ledgers: list[str] = []

    def fail_the_decision(operation: str, path: str) -> None:
        if operation == "create" and path.endswith("-publications.tmp"):
            ledgers.append(path)
            if len(ledgers) == 2:
                raise OSError(errno.EIO, "gone")

    fs.watch = fail_the_decision
    with pytest.raises(OSError, match="gone"):
        store.publish("etl", 0, {("orders", 0): [(b"a", b"1")]})
    fs.watch = None

    marks = HighWatermarkFile(fs, log.directory, writable=False).read()
    assert (marks.high_watermark, marks.durable) == (1, 1)
    with pytest.raises(LogFailedError):
        log.append(b"behind")


def test_a_topic_made_anew_is_not_cut_for_one_that_was_deleted(fs: SimulatedFileSystem) -> None:
    store = store_with_topics(fs)
    fs.fail_next("sync", OSError(errno.EPERM, "gone"), path_ends="audit-0/00000000000000000000.log")
    with pytest.raises(LogFailedError):
        store.publish("etl", 0, {("audit", 0): [(b"a", b"1")]})

    store.delete_topic("audit")

    assert cuts(fs) == {}
    store.create_topic("audit")
    log_of(store, "audit").append(b"new")
    assert contents(open_store(fs.kill()))["audit", 0] == [b"new"]


def test_a_store_whose_ledger_is_damaged_says_so_and_does_not_open(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 0, FIRST)
    store.close()
    file = fs.open_write(f"{DATA}/cordwood-publications")
    file.write_at(40, b"?")
    file.close()

    with pytest.raises(StorageError, match="cordwood-publications"):
        open_store(fs)


def test_a_power_cut_does_not_bring_back_what_an_interrupted_write_removed(
    fs: SimulatedFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = store_with_topics(fs)
    store.publish("app", 1, FIRST)
    write = SimulatedFile.write_at

    def interrupted(file: SimulatedFile, *arguments: Any) -> int:
        written = write(file, *arguments)
        if "orders-1" in file.name and file.name.endswith(".log"):
            monkeypatch.undo()
            raise KeyboardInterrupt
        return written

    monkeypatch.setattr(SimulatedFile, "write_at", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.publish("app", 2, {("orders", 0): [(None, b"x")], ("orders", 1): [(None, b"y")]})

    for seed in range(20):
        with open_store(fs.crash(Random(seed))) as after:
            found = [values(log_of(after, "orders", number)) for number in (0, 1)]
            assert found == [[b"1", b"2"], [b"3"]], seed
