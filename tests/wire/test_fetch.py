"""Fetch, field by field: waiting, limits, epochs, partitions that are not there."""

import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

import cordwood
from cordwood.format.compression import Codec
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import Offset, ProducerId, TimestampMs
from fakes.client_batches import client_batch, marker_batch
from wire.raw_client import RawClient
from wire.record_requests import (
    Wanted,
    batches_of,
    fetch,
    fetch_body,
    only_part,
    produce,
    produce_body,
    receive_fetched,
)
from wire.waiting import await_waiting_fetches

BATCH = bytes(client_batch(b"one", b"two"))
VERSIONS = range(API_CATALOG[ApiKey.FETCH].min_version, API_CATALOG[ApiKey.FETCH].max_version + 1)
FIRST_WITH_TOPIC_ID = 13
LONG_MS = 60_000


@pytest.fixture
def client(broker: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def other(broker: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


def code_of(response: Any) -> ErrorCode:
    ((part,),) = [topic.partitions for topic in response.responses]
    return ErrorCode(part.error_code)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_brings_the_records(
    broker: cordwood.Broker, client: RawClient, topic: str, version: int
) -> None:
    name = broker.store.topic(topic).topic_id if version >= FIRST_WITH_TOPIC_ID else topic
    for _ in range(3):
        produce(client, topic, BATCH)

    part = only_part(fetch(client, [Wanted(topic=name, offset=2)], version=version))

    assert batches_of(part) == [(2, 2), (4, 2)]
    assert part.high_watermark == part.last_stable_offset == 6
    assert version < 5 or part.log_start_offset == 0


def test_a_fetch_from_inside_a_batch_brings_the_whole_batch(client: RawClient, topic: str) -> None:
    produce(client, topic, bytes(client_batch(*[b"%d" % number for number in range(10)])))
    produce(client, topic, BATCH)

    part = only_part(fetch(client, [Wanted(topic=topic, offset=7)]))

    assert batches_of(part) == [(0, 10), (10, 2)]


# --- waiting ------------------------------------------------------------------------------------


def test_a_waiting_fetch_is_answered_as_soon_as_something_is_appended(
    broker: cordwood.Broker, client: RawClient, other: RawClient, topic: str
) -> None:
    started_s = time.monotonic()
    for append in (
        lambda: produce(other, topic, BATCH),
        lambda: broker.store.topic(topic).append_many([(None, b"x"), (None, b"y")]),
    ):
        end = int(broker.store.topic(topic).partition(0).end_offset)
        wanted = [Wanted(topic=topic, offset=end)]
        client.send(ApiKey.FETCH, 12, fetch_body(12, wanted, max_wait_ms=LONG_MS))
        await_waiting_fetches(broker, 1)

        append()

        assert batches_of(only_part(receive_fetched(client))) == [(end, 2)]
    assert time.monotonic() - started_s < LONG_MS / 1000 / 2


def test_a_fetch_that_finds_nothing_waits_for_as_long_as_it_said(
    client: RawClient, topic: str
) -> None:
    started_s = time.monotonic()

    part = only_part(fetch(client, [Wanted(topic=topic)], max_wait_ms=300))

    assert time.monotonic() - started_s >= 0.29
    assert part.error_code == 0
    assert not part.records
    assert part.high_watermark == 0


def test_a_fetch_waits_until_there_are_as_many_bytes_as_it_wants(
    broker: cordwood.Broker, client: RawClient, other: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=2)
    wanted = [Wanted(topic=topic, partition=number) for number in range(2)]
    body = fetch_body(12, wanted, max_wait_ms=LONG_MS, min_bytes=len(BATCH) + 1)
    client.send(ApiKey.FETCH, 12, body)
    await_waiting_fetches(broker, 1)

    produce(other, topic, BATCH)
    for _ in range(3):  # by then the data loop has looked again
        only_part(fetch(other, [Wanted(topic=topic)]))
    assert broker._running().fetches.waiting_count == 1
    produce(other, topic, BATCH, partition=1)

    response = receive_fetched(client)
    parts = [part for answered in response.responses for part in answered.partitions]
    assert [batches_of(part) for part in parts] == [[(0, 2)], [(0, 2)]]


def test_a_fetch_that_wants_no_bytes_or_nothing_at_all_does_not_wait(
    client: RawClient, topic: str
) -> None:
    started_s = time.monotonic()

    fetch(client, [Wanted(topic=topic)], max_wait_ms=LONG_MS, min_bytes=0)
    fetch(client, [], max_wait_ms=LONG_MS)

    assert time.monotonic() - started_s < LONG_MS / 1000 / 2


def test_an_error_is_told_at_once_with_what_the_others_have(
    client: RawClient, topic: str, names: Iterator[str]
) -> None:
    produce(client, topic, BATCH)
    wanted = [Wanted(topic=next(names)), Wanted(topic=topic)]

    response = fetch(client, wanted, max_wait_ms=LONG_MS, min_bytes=1 << 20)

    first, second = (answered.partitions[0] for answered in response.responses)
    assert ErrorCode(first.error_code) is ErrorCode.unknown_topic_or_partition
    assert batches_of(second) == [(0, 2)]


def test_a_topic_that_is_deleted_ends_the_waiting(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)], max_wait_ms=LONG_MS))
    await_waiting_fetches(broker, 1)

    broker.store.delete_topic(topic)

    assert code_of(receive_fetched(client)) is ErrorCode.unknown_topic_or_partition


def test_a_client_that_leaves_is_not_waited_for(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)], max_wait_ms=LONG_MS))
    await_waiting_fetches(broker, 1)

    client.socket.close()

    await_waiting_fetches(broker, 0)


# --- limits -------------------------------------------------------------------------------------


def test_partitions_are_served_in_their_order_within_the_limit(
    client: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=3)
    for partition in range(3):
        for _ in range(2):
            produce(client, topic, BATCH, partition=partition)
    size = len(BATCH)
    wanted = [Wanted(topic=topic, partition=number) for number in (2, 0, 1)]

    response = fetch(client, wanted, max_bytes=3 * size)

    parts = [part for answered in response.responses for part in answered.partitions]
    assert [(part.partition_index, len(part.records or b"")) for part in parts] == [
        (2, 2 * size),
        (0, size),
        (1, 0),
    ]


def test_the_first_batch_comes_whole_however_small_the_limits(
    client: RawClient, topic: str
) -> None:
    large = bytes(client_batch(bytes(100_000)))
    produce(client, topic, large)
    produce(client, topic, large)

    by_partition = only_part(fetch(client, [Wanted(topic=topic, max_bytes=10)]))
    by_answer = only_part(fetch(client, [Wanted(topic=topic)], max_bytes=10))

    assert batches_of(by_partition) == [(0, 1)]
    assert batches_of(by_answer) == [(0, 1)]


# --- partitions and offsets that are not there, epochs of others ----------------------------------


def test_partitions_and_topics_that_are_not_there_are_told(
    client: RawClient, topic: str, names: Iterator[str]
) -> None:
    def code(wanted: Wanted, version: int = 12) -> ErrorCode:
        return code_of(fetch(client, [wanted], version=version))

    assert code(Wanted(topic=next(names))) is ErrorCode.unknown_topic_or_partition
    assert code(Wanted(topic=topic, partition=1)) is ErrorCode.unknown_topic_or_partition
    assert code(Wanted(topic=UUID(int=5)), 13) is ErrorCode.unknown_topic_id


@pytest.mark.parametrize("offset", [-1, 1, 5, 1 << 60])
def test_an_offset_that_the_log_does_not_have_is_told(
    broker: cordwood.Broker, client: RawClient, topic: str, offset: int
) -> None:
    for _ in range(2):
        produce(client, topic, BATCH)
    broker.store.topic(topic).partition(0).delete_before(2)

    response = fetch(client, [Wanted(topic=topic, offset=offset)], max_wait_ms=LONG_MS)

    assert code_of(response) is ErrorCode.offset_out_of_range


def test_leader_epochs_that_are_not_the_present_one_are_refused(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    broker.store.topic(topic).partition(0).batches.append_batch(client_batch(b"x"), leader_epoch=5)

    def code(epoch: int) -> ErrorCode:
        return code_of(fetch(client, [Wanted(topic=topic, leader_epoch=epoch)]))

    assert code(-1) is ErrorCode.none
    assert code(5) is ErrorCode.none
    assert code(4) is ErrorCode.fenced_leader_epoch
    assert code(6) is ErrorCode.unknown_leader_epoch


def test_a_history_that_parts_from_ours_is_told_where(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    log = broker.store.topic(topic).partition(0)
    for epoch in (1, 1, 3, 3):
        log.batches.append_batch(client_batch(b"x"), leader_epoch=epoch)

    def diverging(offset: int, epoch: int) -> tuple[int, int] | None:
        wanted = Wanted(topic=topic, offset=offset, last_fetched_epoch=epoch)
        found = only_part(fetch(client, [wanted], max_wait_ms=LONG_MS)).diverging_epoch
        return None if found is None or found.epoch < 0 else (found.epoch, found.end_offset)

    assert diverging(2, 1) is None
    assert diverging(3, 3) is None
    assert diverging(3, 1) == (1, 2)
    assert diverging(3, 2) == (1, 2)


def test_zstd_topics_are_not_for_versions_that_do_not_know_it(
    client: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(compression_type="zstd")
    produce(client, topic, BATCH)

    old, new = (fetch(client, [Wanted(topic=topic)], version=version) for version in (9, 10))

    assert code_of(old) is ErrorCode.unsupported_compression_type
    assert code_of(new) is ErrorCode.none


def test_read_committed_stops_at_open_transactions_and_names_the_aborted(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    log = broker.store.topic(topic).partition(0)

    def append(producer_id: int, sequence: int) -> None:
        log.batches.append_batch(
            client_batch(b"x", producer_id=producer_id, sequence=sequence, transactional=True)
        )

    append(1, 0)
    log.batches.append_marker(
        marker_batch(1, is_abort=True),
        MarkerFacts(
            producer_id=ProducerId(1),
            producer_epoch=0,
            coordinator_epoch=0,
            offset=Offset(0),
            timestamp=TimestampMs(1),
            is_abort=True,
        ),
    )
    append(2, 0)

    committed = only_part(fetch(client, [Wanted(topic=topic)], isolation_level=1))
    uncommitted = only_part(fetch(client, [Wanted(topic=topic)], isolation_level=0))

    assert committed.high_watermark == uncommitted.high_watermark == 3
    assert committed.last_stable_offset == uncommitted.last_stable_offset == 2
    assert batches_of(committed) == [(0, 1), (1, 1)]
    assert [(t.producer_id, t.first_offset) for t in committed.aborted_transactions] == [(1, 0)]
    assert batches_of(uncommitted) == [(0, 1), (1, 1), (2, 1)]


# --- other things on the connection -------------------------------------------------------------


def test_fetches_and_produces_share_a_connection(client: RawClient, topic: str) -> None:
    for number in range(10):
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, BATCH)]))
        client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic, offset=2 * number)]))

    for number in range(10):
        client.receive(ApiKey.PRODUCE, 9)
        assert batches_of(only_part(receive_fetched(client))) == [(2 * number, 2)]


def test_compressed_records_come_as_they_are_stored(client: RawClient, topic: str) -> None:
    batch = client_batch(b"x" * 1000, b"y" * 1000, codec=Codec.LZ4)
    produce(client, topic, bytes(batch))

    part = only_part(fetch(client, [Wanted(topic=topic)]))

    assert bytes(part.records)[16:] == bytes(batch)[16:]  # all but the offset and the epoch


def test_internal_topics_can_be_read(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    broker.store.group("readers").commit({(topic, 0): 0})

    part = only_part(fetch(client, [Wanted(topic="__consumer_offsets")]))

    assert part.high_watermark > 0
    assert part.records
