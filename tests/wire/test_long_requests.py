"""Requests that take long to read or check: only their own connections wait for them."""

import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import cordwood
from cordwood.format.batch_builder import BatchStyle, build_batch
from cordwood.format.batch_header import HEADER_SIZE
from cordwood.format.compression import Codec, compress
from cordwood.format.record import Record
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response, encode_request
from cordwood.quantities import TimestampMs
from fakes.client_batches import client_batch, raw_batch, raw_record
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import produce, produce_body, receive_produced
from wire.waiting import await_true

BATCH = bytes(client_batch(b"one"))
MIB = 1024 * 1024
CODECS = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


@pytest.fixture
def client(broker: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


def varint_count(count: int) -> bytes:
    out = bytearray()
    while count >= 0x80:
        out.append(count & 0x7F | 0x80)
        count >>= 7
    return bytes([*out, count])


def test_a_header_with_a_million_tags_closes_its_connection(client: RawClient) -> None:
    header = request_header(ApiKey.METADATA, 9, 1)[:-1]
    tags = varint_count(1_000_000) + b"\x01\x00" * 1_000_000

    client.send_bytes(framed(header + tags))

    assert client.is_closed_by_broker()


@pytest.mark.parametrize("tags", [1, 100])
def test_unknown_tags_up_to_a_hundred_are_passed_over(client: RawClient, tags: int) -> None:
    header = request_header(ApiKey.METADATA, 9, 1)[:-1] + varint_count(tags) + b"\x63\x00" * tags

    client.send_bytes(framed(header + encode_request(ApiKey.METADATA, 9, {"topics": []})))

    assert client.receive(ApiKey.METADATA, 9)[0] == 1


def test_a_metadata_request_with_many_items_is_answered_and_others_do_not_wait(
    broker: cordwood.Broker, client: RawClient
) -> None:
    names = [{"name": f"absent.{number}"} for number in range(20_000)]
    request = {"topics": names, "allow_auto_topic_creation": False}
    with RawClient(broker.bootstrap_servers) as other:
        assert other.is_answered()
        client.send(ApiKey.METADATA, 9, encode_request(ApiKey.METADATA, 9, request))
        client.send(ApiKey.API_VERSIONS, 0)
        assert other.is_answered()

    number, body = client.receive(ApiKey.METADATA, 9)
    answer = decode_response(ApiKey.METADATA, 9, body)
    assert number == 1
    assert len(answer.topics) == 20_000
    assert client.receive(ApiKey.API_VERSIONS, 0)[0] == 2


@pytest.mark.parametrize("key", [ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS])
def test_a_large_request_to_the_coordinator_is_answered(client: RawClient, key: ApiKey) -> None:
    groups = [f"group-{number}" for number in range(2000)]
    requests: dict[ApiKey, tuple[int, dict[str, Any]]] = {
        ApiKey.OFFSET_FETCH: (8, {"groups": [{"group_id": name} for name in groups]}),
        ApiKey.DESCRIBE_GROUPS: (5, {"groups": groups}),
    }
    version, request = requests[key]

    answer = client.call(key, version, request)

    assert len(answer.groups) == 2000


def test_a_request_to_the_coordinator_with_too_many_items_closes_its_connection(
    client: RawClient,
) -> None:
    request = {"groups": [str(number) for number in range(20_001)]}

    client.send(ApiKey.DESCRIBE_GROUPS, 5, encode_request(ApiKey.DESCRIBE_GROUPS, 5, request))

    assert client.is_closed_by_broker()


@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH])
def test_a_request_for_too_many_partitions_closes_its_connection(
    client: RawClient, key: ApiKey
) -> None:
    count = struct.pack(">i", 10_001)
    if key == ApiKey.PRODUCE:
        version, item = 7, struct.pack(">ii", 0, -1)
        start = struct.pack(">hhii", -1, 1, 1000, 1)
    else:
        version, item = 4, struct.pack(">iqi", 0, 0, 1)
        start = struct.pack(">iiiiBi", -1, 0, 1, 1000, 0, 1)

    client.send(key, version, start + struct.pack(">h", 1) + b"t" + count + item * 10_001)

    assert client.is_closed_by_broker()


# --- batches that inflate ------------------------------------------------------------------------


def inflating(codec: Codec, size: int) -> bytes:
    """A batch of one record of `size` zeros."""
    return bytes(client_batch(bytes(size), codec=codec))


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_a_batch_that_inflates_a_lot_is_stored_in_its_place(
    broker: cordwood.Broker, client: RawClient, topic: str, codec: Codec
) -> None:
    """Produces on one connection: those behind it wait for it, those before it come first."""
    large = inflating(codec, 4 * MIB)
    batches = [BATCH, large, BATCH, BATCH, large, BATCH]

    for batch in batches:
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, batch)]))

    answers = [receive_produced(client, 9).responses[0].partition_responses[0] for _ in batches]
    assert [(part.error_code, part.base_offset) for part in answers] == [
        (0, offset) for offset in range(len(batches))
    ]
    sizes = [len(record.value or b"") for record in broker.store.topic(topic).partition(0).read(0)]
    assert sizes == [3, 4 * MIB, 3, 3, 4 * MIB, 3]


def test_parts_behind_a_batch_that_inflates_are_stored_in_their_order(
    client: RawClient, topic: str
) -> None:
    large = inflating(Codec.ZSTD, 4 * MIB)

    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, b) for b in (BATCH, large, BATCH)]))

    parts = [
        part
        for answer in receive_produced(client, 9).responses
        for part in answer.partition_responses
    ]
    assert [(part.error_code, part.base_offset) for part in parts] == [(0, 0), (0, 1), (0, 2)]


@pytest.mark.parametrize("acks", [0, 1, -1])
def test_every_kind_of_acks_works_for_a_batch_that_inflates(
    broker: cordwood.Broker, client: RawClient, topic: str, acks: int
) -> None:
    body = produce_body(9, [(topic, 0, inflating(Codec.LZ4, 4 * MIB))], acks=acks)

    client.send(ApiKey.PRODUCE, 9, body)

    if acks:
        (answer,) = receive_produced(client, 9).responses
        assert answer.partition_responses[0].error_code == 0
    log = broker.store.topic(topic).partition(0)
    await_true(lambda: log.end_offset == 1)
    assert client.is_answered()


def test_a_bomb_is_refused_and_others_do_not_wait(
    broker: cordwood.Broker, client: RawClient, topic: str
) -> None:
    payload = compress(Codec.ZSTD, bytes(300 * MIB))
    bomb = bytes(raw_batch(payload, attributes=int(Codec.ZSTD)))
    assert len(bomb) < 64 * 1024 + HEADER_SIZE
    slowest_s = 0.0
    with RawClient(broker.bootstrap_servers) as other:
        produce(other, topic, BATCH)
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, bomb)]))
        for _ in range(20):
            started_s = time.monotonic()
            assert produce(other, topic, BATCH).error_code == 0
            slowest_s = max(slowest_s, time.monotonic() - started_s)

    (answer,) = receive_produced(client, 9).responses
    assert answer.partition_responses[0].error_code == ErrorCode.invalid_record
    assert slowest_s < 2  # the benchmark of hostile clients measures it


def test_many_records_with_wrong_numbers_are_renumbered_elsewhere(
    client: RawClient, topic: str
) -> None:
    records = b"".join(raw_record(b"x", offset_delta=5) for _ in range(3000))
    batch = bytes(raw_batch(records, count=3000))

    answer = produce(client, topic, batch)

    assert (answer.error_code, answer.base_offset) == (0, 0)


# --- batches of very many records ----------------------------------------------------------------


def empty_records(count: int, codec: Codec) -> bytes:
    """A batch of `count` records without key and value."""
    style = BatchStyle(bytes_max=64 * MIB, codec=codec)
    records = [Record(None, timestamp_ms=int(time.time() * 1000))] * count
    return bytes(build_batch(records, TimestampMs(0), style).data)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD], ids=str)
@pytest.mark.parametrize("stored_as", ["producer", "gzip"])
def test_a_batch_of_very_many_records_is_checked_elsewhere_and_stored_in_its_place(
    broker: cordwood.Broker,
    client: RawClient,
    make_topic: Callable[..., str],
    codec: Codec,
    stored_as: str,
) -> None:
    topic = make_topic(max_message_bytes=64 * MIB, compression_type=stored_as)
    count = 300_000
    large = empty_records(count, codec)
    with RawClient(broker.bootstrap_servers) as other:
        produce(other, topic, BATCH)
        for batch in (large, BATCH):
            client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, batch)]))
        assert produce(other, topic, BATCH).error_code == 0

        answers = [receive_produced(client, 9).responses[0].partition_responses[0] for _ in "12"]

    assert [part.error_code for part in answers] == [0, 0]
    assert answers[1].base_offset - answers[0].base_offset in {count, count + 1}
    assert broker.store.topic(topic).partition(0).end_offset == count + 3


def test_more_records_than_a_batch_may_have_are_refused_so_that_java_splits_the_batch(
    client: RawClient, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(max_message_bytes=64 * MIB)
    payload = compress(Codec.ZSTD, raw_record(None, offset_delta=0) * 1_000_001)
    batch = bytes(raw_batch(payload, count=1_000_001, attributes=int(Codec.ZSTD)))

    answer = produce(client, topic, batch)

    assert answer.error_code == ErrorCode.message_too_large
    assert "1000001 records" in answer.error_message
    assert client.is_answered()
