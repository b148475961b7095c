"""The shell around requests: frames, order, limits. Whoever misbehaves harms only itself."""

import gc
import socket
import struct
import threading
from collections.abc import Callable, Iterator

import pytest

import cordwood
from cordwood.broker.net.connections.client_connection import ClientConnection
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.messages import decode_response, encode_request
from fakes.client_batches import client_batch
from fakes.without_collector import without_collector
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import Wanted, fetch_body, produce, produce_body, receive_produced
from wire.waiting import await_true

BATCH = bytes(client_batch(b"one", b"two"))
MIB = 1024 * 1024


@pytest.fixture
def client(broker: cordwood.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as connected:
        yield connected


@pytest.fixture
def bystander(broker: cordwood.Broker) -> Iterator[RawClient]:
    """Another client, which must not notice anything."""
    with RawClient(broker.bootstrap_servers) as connected:
        assert connected.is_answered()
        yield connected


# --- order --------------------------------------------------------------------------------------


def test_pipelined_requests_are_answered_in_order(client: RawClient, topic: str) -> None:
    requests = [
        (ApiKey.METADATA, 9, encode_request(ApiKey.METADATA, 9, {"topics": None})),
        (ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, BATCH)])),
        (ApiKey.PRODUCE, 7, produce_body(7, [(topic, 0, BATCH)])),
        (ApiKey.LIST_OFFSETS, 6, encode_request(ApiKey.LIST_OFFSETS, 6, {"replica_id": -1})),
        (ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)])),
        (ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, BATCH)])),
        (ApiKey.DESCRIBE_CLUSTER, 0, encode_request(ApiKey.DESCRIBE_CLUSTER, 0, {})),
    ] * 20

    client.send_bytes(
        b"".join(
            framed(request_header(key, version, number) + body)
            for number, (key, version, body) in enumerate(requests)
        )
    )

    answered = [client.receive(key, version)[0] for key, version, _ in requests]
    assert answered == list(range(len(requests)))


def test_a_request_behind_a_waiting_fetch_is_answered_after_it(
    client: RawClient, bystander: RawClient, topic: str
) -> None:
    client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)], max_wait_ms=60_000))
    client.send(ApiKey.API_VERSIONS, 0)

    produce(bystander, topic, BATCH)

    assert client.receive(ApiKey.FETCH, 12)[0] == 1
    assert client.receive(ApiKey.API_VERSIONS, 0)[0] == 2


def test_produces_on_one_connection_get_offsets_in_the_order_they_were_sent(
    client: RawClient, topic: str
) -> None:
    """Small ones, large ones and those of several parts go different ways through the broker."""
    large = bytes(client_batch(b"x" * 300_000))
    bodies = [
        produce_body(9, [(topic, 0, batch)] * parts)
        for batch, parts in ((BATCH, 1), (large, 1), (BATCH, 2), (BATCH, 1), (BATCH, 1))
    ]

    for body in bodies * 10:
        client.send(ApiKey.PRODUCE, 9, body)

    offsets = [
        topic_answer.partition_responses[0].base_offset
        for _ in bodies * 10
        for topic_answer in receive_produced(client, 9).responses
    ]
    assert offsets == sorted(offsets)
    assert len(set(offsets)) == len(offsets)


def test_a_request_that_arrives_byte_by_byte_is_answered(client: RawClient) -> None:
    client.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for byte in framed(request_header(ApiKey.API_VERSIONS, 0, 5)):
        client.send_bytes(bytes([byte]))

    assert client.receive(ApiKey.API_VERSIONS, 0)[0] == 5


def test_a_client_that_reads_late_gets_all_its_answers_in_order(
    broker: cordwood.Broker, bystander: RawClient, make_topic: Callable[..., str]
) -> None:
    """More answers than sockets hold: the broker stops taking requests until they are read."""
    wide = make_topic(partitions=60)
    request = encode_request(ApiKey.METADATA, 9, {"topics": [{"name": wide}]})
    count = 400
    with RawClient(broker.bootstrap_servers, receive_buffer_bytes=4096) as client:
        sender = threading.Thread(
            target=lambda: [client.send(ApiKey.METADATA, 9, request) for _ in range(count)]
        )
        sender.start()
        assert bystander.is_answered()

        answered = [client.receive(ApiKey.METADATA, 9)[0] for _ in range(count)]

        sender.join()
    assert answered == list(range(1, count + 1))


# --- nonsense -----------------------------------------------------------------------------------

NONSENSE = {
    "a size of zero": struct.pack(">i", 0),
    "a negative size": struct.pack(">i", -1),
    "the most negative size": struct.pack(">i", -(2**31)),
    "a size above the limit": struct.pack(">i", 2**31 - 1),
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(100),
    "a frame too short for a header": framed(b"\0\0\0\x03"),
    "a client id longer than the frame": framed(struct.pack(">hhih", 18, 0, 1, 100) + b"short"),
    "a client id of negative size": framed(struct.pack(">hhih", 18, 0, 1, -2)),
    "a client id that is not text": framed(struct.pack(">hhih", 18, 0, 1, 2) + b"\xff\xfe"),
    "an unknown API": framed(request_header(999, 0, 1)),
    "a negative API": framed(request_header(-1, 0, 1)),
    "an API that Kafka has and we do not serve": framed(request_header(24, 3, 1) + bytes(30)),
    "a version that is too new": framed(request_header(ApiKey.METADATA, 99, 1)),
    "a version that is too old": framed(request_header(ApiKey.PRODUCE, 2, 1) + bytes(20)),
    "a negative version": framed(request_header(ApiKey.METADATA, -1, 1)),
    "tags of the header that are none": framed(
        request_header(ApiKey.METADATA, 9, 1)[:-1] + b"\xff\xff\xff\xff\xff\xff"
    ),
}


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_closes_its_connection_and_no_other(
    client: RawClient, bystander: RawClient, nonsense: bytes
) -> None:
    client.send_bytes(nonsense)

    assert client.is_closed_by_broker()
    assert bystander.is_answered()


@pytest.mark.parametrize("nonsense", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_closes_a_connection_that_has_produced_before(
    client: RawClient, bystander: RawClient, topic: str, nonsense: bytes
) -> None:
    produce(client, topic, BATCH)

    client.send_bytes(nonsense)

    assert client.is_closed_by_broker()
    assert bystander.is_answered()


@pytest.mark.parametrize(
    "api", [api for api in API_CATALOG.values() if api.key != ApiKey.API_VERSIONS], ids=str
)
def test_a_request_without_a_body_closes_its_connection(
    broker: cordwood.Broker, bystander: RawClient, api: object
) -> None:
    key = api.key  # type: ignore[attr-defined]
    with RawClient(broker.bootstrap_servers) as client:
        client.send(key, API_CATALOG[key].max_version)

        assert client.is_closed_by_broker()
    assert bystander.is_answered()


@pytest.mark.parametrize("is_first", [True, False], ids=["first request", "later request"])
@pytest.mark.parametrize("key", [ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.METADATA], ids=str)
def test_a_body_cut_short_closes_its_connection(
    client: RawClient, bystander: RawClient, topic: str, key: ApiKey, is_first: bool
) -> None:
    bodies = {
        ApiKey.PRODUCE: produce_body(9, [(topic, 0, BATCH)]),
        ApiKey.FETCH: fetch_body(12, [Wanted(topic=topic)]),
        ApiKey.METADATA: encode_request(ApiKey.METADATA, 9, {"topics": None}),
    }
    if not is_first:
        produce(client, topic, BATCH)

    client.send(key, 12 if key == ApiKey.FETCH else 9, bodies[key][:-1])

    assert client.is_closed_by_broker()
    assert bystander.is_answered()


def test_a_large_request_that_makes_no_sense_closes_its_connection(
    client: RawClient, bystander: RawClient, topic: str
) -> None:
    body = produce_body(9, [(topic, 0, bytes(2 * MIB))])

    client.send(ApiKey.PRODUCE, 9, body + b"more")

    assert client.is_closed_by_broker()
    assert bystander.is_answered()


def test_half_a_frame_and_then_nothing_harms_nobody(
    broker: cordwood.Broker, bystander: RawClient, topic: str
) -> None:
    frame = framed(request_header(ApiKey.PRODUCE, 9, 1) + produce_body(9, [(topic, 0, bytes(MIB))]))
    for sent in (1, 3, 4, 5, 14, 100, 200_000, len(frame) - 1):
        with RawClient(broker.bootstrap_servers) as client:
            client.send_bytes(frame[:sent])

    assert bystander.is_answered()
    assert produce(bystander, topic, BATCH).error_code == 0


def test_a_connection_that_breaks_with_requests_waiting_does_not_keep_the_loop_busy(
    broker: cordwood.Broker, bystander: RawClient, topic: str
) -> None:
    client = RawClient(broker.bootstrap_servers)
    client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)], max_wait_ms=600_000))
    client.send(ApiKey.PRODUCE, 9, produce_body(9, [(topic, 0, bytes(MIB))]))
    server = broker._running()
    await_true(lambda: server.fetches.waiting_count == 1)
    count = server.connection_count

    client.reset()

    await_true(lambda: server.connection_count < count)


# --- what is allowed ----------------------------------------------------------------------------


def test_api_versions_in_an_unknown_version_is_answered_in_version_0(client: RawClient) -> None:
    client.send(ApiKey.API_VERSIONS, 77, b"whatever it may hold")

    _, body = client.receive(ApiKey.API_VERSIONS, 0)
    answer = decode_response(ApiKey.API_VERSIONS, 0, body)
    assert answer.error_code == 35
    ranges = {item.api_key: (item.min_version, item.max_version) for item in answer.api_keys}
    assert ranges[ApiKey.API_VERSIONS] == (0, API_CATALOG[ApiKey.API_VERSIONS].max_version)
    assert client.is_answered()


def test_bytes_behind_a_body_are_passed_over(client: RawClient) -> None:
    """librdkafka sends three of them when it asks for all topics."""
    body = encode_request(ApiKey.METADATA, 9, {"topics": None})

    client.send(ApiKey.METADATA, 9, body + bytes(3))

    assert client.receive(ApiKey.METADATA, 9)[0] == 1
    assert client.is_answered()


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_header_alone_asks_for_versions(client: RawClient, version: int) -> None:
    client.send(ApiKey.API_VERSIONS, version)

    assert client.receive(ApiKey.API_VERSIONS, version)[0] == 1


@pytest.mark.parametrize("client_id", [None, "", "å" * 100], ids=["null", "empty", "not ASCII"])
def test_any_client_id_will_do(client: RawClient, topic: str, client_id: str | None) -> None:
    body = produce_body(9, [(topic, 0, BATCH)])

    client.send(ApiKey.PRODUCE, 9, body, client_id)
    client.send(ApiKey.PRODUCE, 9, body, client_id)

    for expected in (0, 2):
        (answer,) = receive_produced(client, 9).responses
        assert answer.partition_responses[0].base_offset == expected


def test_unknown_tagged_fields_of_the_header_are_passed_over(client: RawClient, topic: str) -> None:
    header = request_header(ApiKey.PRODUCE, 9, 1)[:-1] + b"\x01\x63\x03abc"

    client.send_bytes(framed(header + produce_body(9, [(topic, 0, BATCH)])))

    (answer,) = receive_produced(client, 9).responses
    assert answer.partition_responses[0].error_code == 0


# --- memory -------------------------------------------------------------------------------------


def test_a_client_that_left_leaves_nothing_for_the_garbage_collector(
    broker: cordwood.Broker, topic: str
) -> None:
    """The broker searches for garbage rarely: thousands of short connections would wait for it."""
    with without_collector():
        before = _connections()
        with RawClient(broker.bootstrap_servers) as client:
            produce(client, topic, BATCH)
            client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic)]))
            client.receive(ApiKey.FETCH, 12)
            assert client.is_answered()
            own = _connections() - before
            assert own

        await_true(lambda: not own & _connections())


def _connections() -> set[int]:
    """The connections in memory, open or not."""
    return {id(each) for each in gc.get_objects() if isinstance(each, ClientConnection)}
