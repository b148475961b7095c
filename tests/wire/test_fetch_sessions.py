"""Fetch sessions on the wire: what is remembered, told, forgotten and refused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from fakes.client_batches import client_batch
from wire.raw_client import RawClient
from wire.record_requests import (
    Wanted,
    batches_of,
    fetch,
    fetch_body,
    produce,
    receive_fetched,
)
from wire.waiting import await_waiting_fetches

BATCH = bytes(client_batch(b"one", b"two"))
LONG_MS = 60_000


@pytest.fixture
def client(broker: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def other(broker: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


def session(
    client: RawClient,
    session_id: int,
    epoch: int,
    *wanted: Wanted,
    forgotten: tuple[tuple[str, int], ...] = (),
    **options: int,
) -> Any:
    return fetch(
        client,
        wanted,
        session_id=session_id,
        session_epoch=epoch,
        forgotten=forgotten,
        **options,
    )


def told(response: Any) -> list[tuple[str, int, int]]:
    """Topic, partition and count of batches of what an answer holds."""
    return [
        (answered.topic, part.partition_index, len(batches_of(part)))
        for answered in response.responses
        for part in answered.partitions
    ]


def test_within_a_session_only_news_is_told(
    client: RawClient, other: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    produce(other, topic, BATCH)

    first = session(client, 0, 0, *(Wanted(topic=topic, partition=number) for number in range(2)))
    nothing = session(client, first.session_id, 1, Wanted(topic=topic, offset=2))
    produce(other, topic, BATCH, partition=1)
    news = session(client, first.session_id, 2)

    assert first.session_id > 0
    assert told(first) == [(topic, 0, 1), (topic, 1, 0)]
    assert (nothing.session_id, told(nothing)) == (first.session_id, [])
    assert told(news) == [(topic, 1, 1)]


def test_a_session_waits_for_what_it_remembers(
    broker: cordwood.Broker, client: RawClient, other: RawClient, topic: str
) -> None:
    first = session(client, 0, 0, Wanted(topic=topic))
    body = fetch_body(12, [], session_id=first.session_id, session_epoch=1, max_wait_ms=LONG_MS)
    client.send(ApiKey.FETCH, 12, body)
    await_waiting_fetches(broker, 1)

    produce(other, topic, BATCH)

    assert told(receive_fetched(client)) == [(topic, 0, 1)]


def test_what_is_forgotten_is_not_told_any_more(
    client: RawClient, other: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    first = session(client, 0, 0, *(Wanted(topic=topic, partition=number) for number in range(2)))

    forgetting = session(client, first.session_id, 1, forgotten=((topic, 0),))
    produce(other, topic, BATCH)
    produce(other, topic, BATCH, partition=1)
    after = session(client, first.session_id, 2)

    assert told(forgetting) == []
    assert told(after) == [(topic, 1, 1)]


def test_a_mark_that_moves_is_news(
    broker: cordwood.Broker, client: RawClient, other: RawClient, topic: str
) -> None:
    produce(other, topic, BATCH)
    first = session(client, 0, 0, Wanted(topic=topic, offset=2))

    broker.store.topic(topic).partition(0).delete_before(1)
    moved = session(client, first.session_id, 1)
    quiet = session(client, first.session_id, 2)

    (part,) = moved.responses[0].partitions
    assert (part.log_start_offset, part.records or b"") == (1, b"")
    assert told(quiet) == []


def test_a_partition_that_was_served_comes_last_next_time(
    client: RawClient, other: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        produce(other, topic, BATCH, partition=partition)
    one = len(BATCH)

    first = session(
        client, 0, 0, *(Wanted(topic=topic, partition=n) for n in range(3)), max_bytes=one
    )
    served = [[part for _, part, count in told(first) if count]]
    for epoch in (1, 2):
        again = session(client, first.session_id, epoch, max_bytes=one)
        served.append([part for _, part, count in told(again) if count])

    assert served == [[0], [1], [2]]


def test_unknown_sessions_and_wrong_epochs_are_refused(client: RawClient, topic: str) -> None:
    first = session(client, 0, 0, Wanted(topic=topic))

    unknown = session(client, first.session_id + 1, 1)
    skipped = session(client, first.session_id, 2)
    right = session(client, first.session_id, 1)

    assert ErrorCode(unknown.error_code) is ErrorCode.fetch_session_id_not_found
    assert ErrorCode(skipped.error_code) is ErrorCode.invalid_fetch_session_epoch
    assert right.error_code == 0


def test_a_session_ends_when_its_client_says_so(client: RawClient, topic: str) -> None:
    first = session(client, 0, 0, Wanted(topic=topic))

    last = session(client, first.session_id, -1, Wanted(topic=topic))
    after = session(client, first.session_id, 1)

    assert last.session_id == 0
    assert ErrorCode(after.error_code) is ErrorCode.fetch_session_id_not_found


def test_a_session_by_name_is_not_one_by_id(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    first = session(client, 0, 0, Wanted(topic=topic))

    by_id = fetch(client, [], version=13, session_id=first.session_id, session_epoch=1)

    assert ErrorCode(by_id.error_code) is ErrorCode.fetch_session_topic_id_error


def test_without_room_for_sessions_everything_is_told_each_time() -> None:
    slots = {"max.incremental.fetch.session.cache.slots": 1}
    with (
        cordwood.Broker(topics=["t"], config=slots) as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        first = session(client, 0, 0, Wanted(topic="t"))
        second = session(client, 0, 0, Wanted(topic="t"))

        assert first.session_id > 0
        assert second.session_id == 0
        assert told(second) == [("t", 0, 0)]
