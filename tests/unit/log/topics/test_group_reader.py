"""Readers of a group: they resume, commit by themselves and share the partitions."""

import gc
import logging
import threading
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import (
    ConfigError,
    LogClosedError,
    ReadOnlyError,
    TopicDeletedError,
    UnknownTopicError,
)
from cordwood.log.store.store import Store
from cordwood.log.topics import group_session
from fakes.forking_program import run_forking
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

TIMEOUT_S = 20


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> Store:
    return open_store(SimulatedFileSystem(), clock=clock)


def fill(store: Store, *, partitions: int = 1, count: int = 6) -> cordwood.Topic:
    topic = store.create_topic("orders", partitions=partitions)
    for n in range(count):
        topic.append(b"%d" % n, partition=n % partitions)
    return topic


def read_all(store: Store, **options: object) -> list[int]:
    """What the group gets until nothing is left; all of it is committed."""
    with store.group("g").reader("orders", idle_timeout_ms=0, **options) as reader:  # type: ignore[arg-type]
        return sorted(int(record.value or b"") for record in reader)


class HandlerError(Exception):
    """What a handler raises in these tests."""


def fail_at(reader: cordwood.GroupReader, offset: int, *, commit_at: int | None = None) -> None:
    with reader:
        for record in reader:
            if record.offset == commit_at:
                reader.commit()
            if record.offset == offset:
                raise HandlerError


# --- committing and resuming ---------------------------------------------------------------------


def test_a_group_gets_each_record_of_all_partitions_and_then_only_new_ones(store: Store) -> None:
    topic = fill(store, partitions=3, count=7)

    assert read_all(store) == list(range(7))
    assert read_all(store) == []
    topic.append(b"7", partition=1)
    assert read_all(store) == [7]
    assert store.group("g").committed() == {("orders", 0): 3, ("orders", 1): 3, ("orders", 2): 2}


def test_a_block_that_ends_has_handled_the_record_it_was_given_last(store: Store) -> None:
    fill(store)

    with store.group("g").reader("orders") as reader:
        for record in reader:
            if record.offset == 3:
                break

    assert store.group("g").committed("orders", 0) == 4
    assert read_all(store) == [4, 5]


def test_a_block_that_raises_commits_nothing_so_its_records_come_again(store: Store) -> None:
    fill(store)

    with pytest.raises(HandlerError):
        fail_at(store.group("g").reader("orders"), 3)

    assert store.group("g").committed() == {}
    assert read_all(store) == [0, 1, 2, 3, 4, 5]


def test_an_explicit_commit_stays_although_the_block_raises(store: Store) -> None:
    fill(store)

    with pytest.raises(HandlerError):
        fail_at(store.group("g").reader("orders"), 4, commit_at=2)

    assert store.group("g").committed("orders", 0) == 3


def test_handled_records_are_committed_when_the_interval_has_passed(
    store: Store, clock: ManualClock
) -> None:
    fill(store)
    seen: list[int | None] = []

    with store.group("g").reader("orders", commit_interval_ms=100, idle_timeout_ms=0) as reader:
        for _ in reader:
            seen.append(store.group("g").committed("orders", 0))
            clock.advance(60)

    assert seen == [None, None, 2, 2, 4, 4], "the record being handled is not part of it"
    assert store.group("g").committed("orders", 0) == 6


def test_an_interval_of_zero_commits_after_each_record(store: Store) -> None:
    fill(store, count=3)

    with store.group("g").reader("orders", commit_interval_ms=0, idle_timeout_ms=0) as reader:
        seen = [store.group("g").committed("orders", 0) for _ in reader]

    assert seen == [None, 1, 2]


def test_a_second_loop_goes_on_where_the_first_one_was_left(store: Store) -> None:
    fill(store)

    with store.group("g").reader("orders", idle_timeout_ms=0) as reader:
        first = next(iter(reader)).offset
        others = [record.offset for record in reader]

    assert (first, others) == (0, [1, 2, 3, 4, 5])


def test_markers_and_aborted_records_are_passed_and_committed(store: Store) -> None:
    topic = store.create_topic("orders")
    with store.transaction("t") as aborted:
        aborted.append("orders", b"0")
        aborted.abort()
    with store.transaction("t") as transaction:
        transaction.append("orders", b"1")

    assert read_all(store, isolation="read_committed") == [1]
    assert store.group("g").committed("orders", 0) == topic[0].high_watermark


def test_gaps_that_compaction_left_are_passed_however_long_they_are(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_session, "TURN_OFFSETS_MAX", 2)
    topic = store.create_topic("orders", config={"cleanup.policy": "compact"})
    topic.append_many([(b"same", b"%d" % n) for n in range(9)])
    store.compact("orders", force=True)
    topic.append(b"9", key=b"other")

    assert read_all(store) == [8, 9]


# --- where a group begins ------------------------------------------------------------------------


def test_a_group_that_begins_at_the_end_gets_what_comes_after_the_reader_was_opened(
    store: Store,
) -> None:
    topic = fill(store, partitions=2)

    with store.group("g").reader("orders", start="end", idle_timeout_ms=0) as reader:
        topic.append(b"6", partition=1)
        found = [record.value for record in reader]

    assert found == [b"6"]


def test_what_came_after_a_reader_at_the_end_was_opened_is_not_lost_in_a_crash(
    store: Store,
) -> None:
    topic = fill(store)
    topic_end = store.group("g").reader("orders", start="end")
    topic.append(b"6")
    with pytest.raises(HandlerError):
        fail_at(topic_end, 6)

    topic.append(b"7")

    assert read_all(store, start="end") == [6, 7]


def test_partitions_that_are_added_are_read_from_their_start(store: Store) -> None:
    topic = fill(store, partitions=2)
    with store.group("g").reader("orders", start="end", idle_timeout_ms=0) as reader:
        assert list(reader) == []

        store.alter_topic("orders", partitions=3)
        topic.append(b"6", partition=2)

        assert [record.value for record in reader] == [b"6"]
        assert reader.partitions == [0, 1, 2]
    store.alter_topic("orders", partitions=4)
    topic.append(b"7", partition=3)
    assert read_all(store, start="end") == [7]


def test_records_that_retention_deleted_are_stepped_over_with_a_warning(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    topic = fill(store)
    store.group("g").commit({("orders", 0): 1})
    topic[0].delete_before(3)

    with caplog.at_level(logging.WARNING):
        assert read_all(store) == [3, 4, 5]

    assert "orders-0 has no offset 1; continuing at 3" in caplog.text


def test_records_that_are_deleted_during_the_iteration_are_stepped_over(store: Store) -> None:
    topic = fill(store, partitions=2, count=8)

    with store.group("g").reader("orders", idle_timeout_ms=0) as reader:
        offsets = []
        for record in reader:
            offsets.append((record.partition, record.offset))
            topic[1].delete_before(2)

    assert offsets == [(0, 0), (0, 1), (0, 2), (0, 3), (1, 2), (1, 3)]


def test_a_committed_offset_after_the_end_of_the_log_continues_at_the_end(store: Store) -> None:
    topic = fill(store)
    store.group("g").commit({("orders", 0): 100})

    assert read_all(store) == []
    topic.append(b"6")
    assert read_all(store) == [6]


# --- several readers -----------------------------------------------------------------------------


def test_readers_of_a_group_share_the_partitions(store: Store) -> None:
    topic = fill(store, partitions=4, count=0)
    group = store.group("g")
    first = group.reader("orders", idle_timeout_ms=0)
    second = group.reader("orders", idle_timeout_ms=0)

    assert [*first, *second, *first, *second] == []
    assert (first.partitions, second.partitions) == ([0, 1], [2, 3])
    for n in range(8):
        topic.append(b"%d" % n, partition=n % 4)
    assert {r.partition for r in first} == {0, 1}
    assert {r.partition for r in second} == {2, 3}
    first.close()
    topic.append(b"8", partition=0)
    assert [r.value for r in second] == [b"8"], "nothing that the first one handled comes again"
    second.close()


def test_a_partition_moves_only_after_its_reader_has_committed_and_given_it_up(
    store: Store,
) -> None:
    fill(store, partitions=2, count=6)
    group = store.group("g")
    first = group.reader("orders", idle_timeout_ms=0)
    records = iter(first)
    handled = [next(records).partition for _ in range(4)]
    assert handled == [0, 0, 0, 1]

    second = group.reader("orders", idle_timeout_ms=0)
    assert list(second) == [], "the first one is busy with a record of partition 1"
    assert list(records) == []
    assert first.partitions == [0]
    assert [(r.partition, r.offset) for r in second] == [(1, 1), (1, 2)]
    first.close()
    second.close()
    assert read_all(store) == []


def test_the_records_of_a_reader_that_failed_go_to_the_others(store: Store) -> None:
    fill(store, partitions=2, count=6)
    group = store.group("g")
    survivor = group.reader("orders", idle_timeout_ms=0)
    with pytest.raises(HandlerError):
        fail_at(group.reader("orders"), 1)

    assert len(list(survivor)) == 6
    survivor.close()


def test_a_reader_that_nobody_closed_gives_its_partitions_back(store: Store) -> None:
    fill(store, partitions=2, count=2)
    abandoned = store.group("g").reader("orders", idle_timeout_ms=0)
    assert len(list(abandoned)) == 2

    del abandoned
    gc.collect()

    assert read_all(store) == [0, 1], "it had not committed"


def test_threads_handle_every_record_of_a_topic_once_while_readers_come_and_go(
    tmp_path: Path,
) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("orders", partitions=6, config={"durability": "os"})
        group = store.group("g")
        seen: list[int] = []
        count = 600

        def work(limit: int | None) -> None:
            with group.reader("orders", idle_timeout_ms=3000, commit_interval_ms=20) as reader:
                for taken, record in enumerate(reader, 1):
                    seen.append(int(record.value or b""))
                    if len(seen) >= count or taken == limit:
                        return

        threads = [threading.Thread(target=work, args=(n,)) for n in (None, 30, 90, 150)]
        for thread in threads:
            thread.start()
        for n in range(count):
            topic.append(b"%d" % n, partition=n * 7 % 6)
        for thread in threads:
            thread.join(TIMEOUT_S)

        assert not any(thread.is_alive() for thread in threads)
        assert sorted(seen) == list(range(count))


def test_a_reader_that_waits_for_a_partition_goes_on_with_all_that_it_holds(store: Store) -> None:
    topic = fill(store, partitions=2, count=4)
    group = store.group("g")
    slow, quick = group.reader("orders"), group.reader("orders", idle_timeout_ms=0)
    with slow, quick:
        held_up = iter(slow)
        assert next(held_up).partition == 0
        assert [r.partition for r in quick] == [1, 1]
        store.alter_topic("orders", partitions=5)
        topic.append_many([(None, b"x")] * 3, partition=1)
        for number in range(2, 5):
            topic.append_many([(None, b"x")] * 3, partition=number)
        members = store._group_readers.members
        (sharing,) = members._sharings.values()
        first = next(iter(quick))  # takes its share of the new partitions
        awaited = next(n for n in range(5) if n not in quick.partitions and n != 0)
        members.take(slow._session._membership, awaited)  # slow has it now, and is busy
        sharing.wanted = {n: 2 if n == awaited else who for n, who in sharing.wanted.items()}
        sharing.round += 1

        got = [first.partition, *(r.partition for r in quick)]

        assert awaited not in got
        assert sorted(set(got)) == quick.partitions
        assert len(got) == 3 * len(quick.partitions)


def test_groups_do_not_share(store: Store) -> None:
    fill(store, partitions=2)
    with (
        store.group("a").reader("orders", idle_timeout_ms=0) as one,
        store.group("b").reader("orders", idle_timeout_ms=0) as other,
    ):
        assert (len(list(one)), len(list(other))) == (6, 6)


def test_a_reader_is_iterated_by_one_loop_at_a_time(store: Store) -> None:
    fill(store)
    with store.group("g").reader("orders") as reader:
        records = iter(reader)
        next(records)

        with pytest.raises(RuntimeError, match="open a reader for each thread"):
            next(iter(reader))


# --- the end of things ---------------------------------------------------------------------------


def test_a_reader_that_waits_ends_when_it_is_stopped_or_the_store_is_closed(
    tmp_path: Path,
) -> None:
    for way in ("stop", "close"):
        store = cordwood.open(tmp_path)
        topic = store.create_topic("orders", partitions=2, exist_ok=True)
        readers: list[cordwood.GroupReader] = []
        is_reading = threading.Event()

        def work(
            store: Store = store,
            readers: list[cordwood.GroupReader] = readers,
            is_reading: threading.Event = is_reading,
        ) -> None:
            with store.group("g").reader("orders") as reader:
                readers.append(reader)
                for _ in reader:
                    is_reading.set()

        thread = threading.Thread(target=work)
        thread.start()
        topic.append(b"1")
        assert is_reading.wait(TIMEOUT_S)
        if way == "stop":
            readers[0].stop()
        else:
            store.close()
        thread.join(TIMEOUT_S)
        assert not thread.is_alive()
        store.close()


def test_a_closed_reader_and_a_closed_store_are_refused(store: Store) -> None:
    fill(store)
    group = store.group("g")
    reader = group.reader("orders")
    reader.close()
    reader.close()

    with pytest.raises(LogClosedError):
        next(iter(reader))
    with pytest.raises(LogClosedError):
        reader.commit()
    left_open = group.reader("orders")
    store.close()
    left_open.close()
    with pytest.raises(LogClosedError):
        group.reader("orders")


@pytest.mark.parametrize("is_created_again", [False, True])
def test_a_deleted_topic_ends_the_iteration_and_its_offsets_do_not_come_back(
    store: Store, *, is_created_again: bool
) -> None:
    fill(store)

    with store.group("g").reader("orders") as reader:
        records = iter(reader)
        next(records)
        store.delete_topic("orders")
        if is_created_again:
            fill(store, count=1)

        with pytest.raises(TopicDeletedError):
            list(records)

    assert store.group("g").committed() == {}
    if is_created_again:
        assert read_all(store) == [0]


def test_a_deleted_topic_is_not_committed_at_the_end_of_the_block(store: Store) -> None:
    fill(store)

    with store.group("g").reader("orders") as reader:
        next(iter(reader))
        store.delete_topic("orders")
        with pytest.raises(TopicDeletedError):
            reader.commit()
        fill(store, count=1)

    assert store.group("g").committed() == {}


def test_wrong_arguments_and_read_only_stores_are_refused(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("orders")
        group = store.group("g")
        with pytest.raises(UnknownTopicError):
            group.reader("others")
        with pytest.raises(ConfigError, match="start = middle"):
            group.reader("orders", start="middle")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="commit_interval_ms = -1"):
            group.reader("orders", commit_interval_ms=-1)
        with pytest.raises(ConfigError, match="idle_timeout_ms = -1"):
            group.reader("orders", idle_timeout_ms=-1)
        with pytest.raises(ConfigError, match="idle_timeout_ms = soon"):
            group.reader("orders", idle_timeout_ms="soon")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="must be str, not bytes"):
            store.group(b"g")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="has 40000 bytes"):
            store.group("x" * 40_000)
        with (
            cordwood.open(tmp_path, read_only=True) as beside,
            pytest.raises(ReadOnlyError, match="read as group 'g'"),
        ):
            beside.group("g").reader("orders")


def test_a_forked_child_is_refused_and_the_parent_goes_on(tmp_path: Path) -> None:
    body = """
    with cordwood.open(sys.argv[1]) as store:
        topic = store.create_topic("orders")
        for number in range(6):
            topic.append(b"%d" % number)
        with store.group("g").reader("orders", idle_timeout_ms=0) as reader:
            next(iter(reader))

            def use():
                with reader:
                    next(iter(reader))

            in_child(lambda: refused(use))
            assert len(list(reader)) == 5
        assert store.group("g").committed("orders", 0) == 6
    """
    run_forking(body, tmp_path)
