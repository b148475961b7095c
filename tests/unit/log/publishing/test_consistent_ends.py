"""The ends of several logs, with every publication whole or not at all."""

from __future__ import annotations

import pytest

from cordwood.log.publishing.consistent_ends import whole_ends
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, log_of, open_store

SMALL = {"internal.segment.bytes": 600, "index.interval.bytes": 100}


Pairs = list[tuple[bytes | None, bytes | None]]


FIRST: dict[tuple[str, int], Pairs] = {
    ("orders", 0): [(b"a", b"1"), (b"b", b"2")],
    ("orders", 1): [(b"c", b"3")],
}


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock())


def store_with_topics(fs: SimulatedFileSystem, **config: object) -> Store:
    store = open_store(fs)
    store.create_topic("orders", partitions=2, config={**SMALL, **config})
    store.create_topic("audit", config={**SMALL, **config})
    return store


def reader(fs: SimulatedFileSystem) -> ReadOnlyStore:
    return ReadOnlyStore([DATA], fs=fs, clock=fs.clock, defaults=TopicConfig())


def test_ends_leave_out_a_publication_that_is_not_visible_everywhere_yet(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 0, FIRST)
    first, second = log_of(store, "orders", 0), log_of(store, "orders", 1)
    show = first.publication.show
    shown: list[tuple[int, ...]] = []

    def show_and_look() -> None:
        show()
        with reader(fs) as beside:
            shown.append((first.high_watermark, second.high_watermark))
            shown.append(tuple(whole_ends(beside, ["orders"], fs=fs).values()))

    first.publication.show = show_and_look  # type: ignore[method-assign]
    store.publish("etl", 1, FIRST)

    assert shown == [(4, 1), (2, 1)]
    assert list(whole_ends(store, ["orders"], fs=fs).values()) == [4, 2]


def test_a_topic_that_came_back_with_its_id_and_fewer_records_holds_no_ends_back(
    fs: SimulatedFileSystem,
) -> None:
    store = store_with_topics(fs)
    store.publish("etl", 0, FIRST)
    topic_id = store.topic("orders").topic_id
    store.delete_topic("orders")
    store.registry.create("orders", partitions=2, topic_id=topic_id)  # as a restore does
    store.topic("orders").append(b"1", partition=0)

    assert list(whole_ends(store, ["orders"], fs=fs).values()) == [1, 0]
    with reader(fs) as beside:
        assert list(whole_ends(beside, ["orders"], fs=fs).values()) == [1, 0]
