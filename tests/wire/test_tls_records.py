"""TLS records and requests have nothing to do with each other: however bytes are cut, it works."""

import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import encode_request
from fakes.client_batches import client_batch
from fakes.tls_files import TlsFiles
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import Wanted, fetch, fetch_body, produce, produce_body
from wire.tls_client import CutTlsClient, TlsClient
from wire.waiting import await_true

KIB, MIB = 1024, 1024 * 1024
ONE = bytes(client_batch(b"one"))
VERSIONS = {"tls12": ssl.TLSVersion.TLSv1_2, "tls13": ssl.TLSVersion.TLSv1_3}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(Path(tmp_path_factory.mktemp("tls")))


@pytest.fixture(scope="module")
def broker(files: TlsFiles) -> Iterator[cordwood.Broker]:
    with cordwood.Broker(config=files.listener_config()) as running:
        yield running


@pytest.fixture(params=VERSIONS.values(), ids=list(VERSIONS))
def context(request: pytest.FixtureRequest, files: TlsFiles) -> ssl.SSLContext:
    return files.client_context(version=request.param)


def whole(connected: socket.socket, data: bytes) -> None:
    connected.sendall(data)


def in_single_bytes(connected: socket.socket, data: bytes) -> None:
    for at in range(len(data)):
        connected.sendall(data[at : at + 1])


def cut_at(position: int, served: Callable[[], bool]) -> Callable[[socket.socket, bytes], None]:
    def send(connected: socket.socket, data: bytes) -> None:
        connected.sendall(data[:position])
        assert served()  # the broker has read the first part, and served another client meanwhile
        connected.sendall(data[position:])

    return send


def api_versions(number: int) -> bytes:
    return framed(request_header(ApiKey.API_VERSIONS, 0, number))


def test_a_handshake_that_arrives_byte_by_byte_succeeds(
    broker: cordwood.Broker, context: ssl.SSLContext
) -> None:
    client = CutTlsClient(broker.bootstrap_servers, context)
    client.handshake(in_single_bytes)

    answer = client.exchange(api_versions(7), in_single_bytes)

    assert answer[4:8] == bytes([0, 0, 0, 7])
    client.close()


def test_a_request_cut_at_every_byte_of_its_record_is_answered(
    broker: cordwood.Broker, context: ssl.SSLContext
) -> None:
    client = CutTlsClient(broker.bootstrap_servers, context)
    client.handshake(whole)
    size = len(api_versions(0)) + 29  # with the header and the tag of its record

    with TlsClient(broker.bootstrap_servers, context) as other:
        for position in range(1, size + 1):
            answer = client.exchange(api_versions(position), cut_at(position, other.is_answered))
            assert int.from_bytes(answer[4:8], "big") == position
    client.close()


@pytest.mark.parametrize("size", [1, 3, 100, 16 * KIB - 1, 16 * KIB, 16 * KIB + 1, 200 * KIB])
def test_records_of_any_size_carry_requests_of_any_size(
    broker: cordwood.Broker, context: ssl.SSLContext, topic: str, size: int
) -> None:
    """Requests begin and end anywhere in records: several in one, one in several."""
    large = bytes(client_batch(b"x" * 150 * KIB))
    requests = b"".join(
        framed(request_header(ApiKey.PRODUCE, 9, number) + produce_body(9, [(topic, 0, batch)]))
        for number, batch in enumerate([ONE, large, ONE, ONE, large, ONE])
    )
    if size < 100:
        requests = requests[: 2 * KIB]
    with TlsClient(broker.bootstrap_servers, context) as client:
        for at in range(0, len(requests), size):
            client.send_bytes(requests[at : at + size])
        count = 6 if size >= 100 else 1
        for number in range(count):
            assert client.receive(ApiKey.PRODUCE, 9)[0] == number

    await_true(lambda: broker.store.topic(topic).partition(0).end_offset >= count)


def test_a_large_request_whose_beginning_shares_a_record_with_others_is_stored(
    broker: cordwood.Broker, context: ssl.SSLContext, topic: str
) -> None:
    """The rest of that record lies in OpenSSL, and the socket is silent."""
    large = bytes(client_batch(b"x" * 300 * KIB))
    head = framed(request_header(ApiKey.PRODUCE, 9, 1) + produce_body(9, [(topic, 0, large)]))
    with TlsClient(broker.bootstrap_servers, context) as client:
        for _ in range(3):
            client.send_bytes(head)
            assert client.receive(ApiKey.PRODUCE, 9)[0] == 1


def test_requests_decrypted_before_the_connection_moves_are_served_after_it(
    broker: cordwood.Broker, context: ssl.SSLContext, topic: str
) -> None:
    """The first produce moves the connection to another loop; all came in one record."""
    request = framed(request_header(ApiKey.PRODUCE, 9, 1) + produce_body(9, [(topic, 0, ONE)]))
    metadata = framed(
        request_header(ApiKey.METADATA, 9, 2)
        + encode_request(ApiKey.METADATA, 9, {"topics": [{"name": topic}]})
    )
    for _ in range(20):
        with TlsClient(broker.bootstrap_servers, context) as client:
            client.send_bytes(metadata + request * 50 + metadata)
            assert client.receive(ApiKey.METADATA, 9)[0] == 2
            for _ in range(50):
                assert client.receive(ApiKey.PRODUCE, 9)[0] == 1
            assert client.receive(ApiKey.METADATA, 9)[0] == 2


@pytest.mark.parametrize("is_tiny", [True, False])
def test_a_large_fetch_is_whole_however_slowly_it_is_read(
    broker: cordwood.Broker, context: ssl.SSLContext, topic: str, is_tiny: bool
) -> None:
    """Writes stop in the middle of a record, and go on with the same bytes."""
    values = [bytes([number]) * 900_000 for number in range(8)]
    buffer_bytes = 4 * KIB if is_tiny else None
    with (
        TlsClient(broker.bootstrap_servers, context) as producer,
        TlsClient(broker.bootstrap_servers, context, receive_buffer_bytes=buffer_bytes) as consumer,
    ):
        for value in values:
            produce(producer, topic, bytes(client_batch(value)))
        consumer.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic=topic, max_bytes=20 * MIB)]))
        consumer.send(ApiKey.API_VERSIONS, 0)
        assert producer.is_answered()  # nobody waits for the slow one
        (size,) = [int.from_bytes(consumer._receive_exactly(4), "big")]
        data = bytearray()
        while len(data) < size:
            data += consumer.socket.recv(min(1 + len(data) % 5000, size - len(data)))

        assert consumer.receive(ApiKey.API_VERSIONS, 0)[0] == 2
    assert all(value in data for value in values)


def test_a_client_that_says_farewell_and_waits_gets_its_answers(
    broker: cordwood.Broker, context: ssl.SSLContext, topic: str
) -> None:
    """It closes TLS in its direction only, and TCP not at all."""
    plain = RawClient(broker.bootstrap_servers)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    tls = context.wrap_bio(incoming, outgoing, server_hostname="localhost")

    def exchange() -> None:
        plain.socket.sendall(outgoing.read())
        incoming.write(plain.socket.recv(65536))

    while True:
        try:
            tls.do_handshake()
            break
        except ssl.SSLWantReadError:
            exchange()
    request = request_header(ApiKey.PRODUCE, 9, 5) + produce_body(9, [(topic, 0, ONE)])
    tls.write(framed(request))
    with pytest.raises(ssl.SSLWantReadError):
        tls.unwrap()
    exchange()

    while part := plain.socket.recv(65536):
        incoming.write(part)

    answer = tls.read(65536)
    assert answer[4:8] == bytes([0, 0, 0, 5])
    assert broker.store.topic(topic).partition(0).end_offset == 1
    plain.socket.close()


def test_fetches_and_produces_of_many_connections_do_not_mix(
    broker: cordwood.Broker, context: ssl.SSLContext, topic: str
) -> None:
    clients = [TlsClient(broker.bootstrap_servers, context) for _ in range(20)]
    for client in clients:
        produce(client, topic, ONE)

    for client in clients:
        found = fetch(client, [Wanted(topic=topic)])
        assert found
        client.socket.close()
