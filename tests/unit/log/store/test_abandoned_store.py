"""A store that is let go of as a crash would."""

import threading
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import LogClosedError


def test_what_was_appended_is_there_after_recovery(tmp_path: Path) -> None:
    store = cordwood.open(tmp_path, config={"durability": "os"})
    topic = store.create_topic("orders", partitions=2)
    for number in range(10):
        topic.append(b"%d" % number, partition=number % 2)

    store.abandon()

    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    with cordwood.open(tmp_path) as again:
        assert [status.was_clean for status in again.directories.status()] == [False]
        assert [log.end_offset for log in again.topic("orders").partitions] == [5, 5]


def test_the_directory_is_free_for_another_writer_at_once(tmp_path: Path) -> None:
    first = cordwood.open(tmp_path)
    first.abandon()

    with cordwood.open(tmp_path) as second:
        second.create_topic("orders").append(b"x")


def test_an_abandoned_store_can_be_abandoned_and_closed_again(tmp_path: Path) -> None:
    store = cordwood.open(tmp_path)
    store.create_topic("orders").append(b"x")
    store.abandon()

    store.abandon()
    store.close()

    assert not (tmp_path / ".kafka_cleanshutdown").exists()


def test_its_logs_take_nothing_more(tmp_path: Path) -> None:
    store = cordwood.open(tmp_path)
    topic = store.create_topic("orders")
    store.abandon()

    with pytest.raises(LogClosedError):
        topic.append(b"too late")
    with pytest.raises(LogClosedError):
        store.topics()


def test_none_of_its_threads_are_left(tmp_path: Path) -> None:
    before = set(threading.enumerate())
    store = cordwood.open(tmp_path)
    store.create_topic("orders").append(b"x")

    store.abandon()

    left = [t.name for t in set(threading.enumerate()) - before if t.name.startswith("cordwood")]
    assert left == []


def test_a_directory_that_was_closed_in_order_is_clean(tmp_path: Path) -> None:
    cordwood.open(tmp_path).close()

    with cordwood.open(tmp_path) as store:
        status = store.directories.status()

    assert [(s.was_clean, s.error, s.is_short_of_room) for s in status] == [(True, None, False)]
    assert status[0].free_bytes > 0
