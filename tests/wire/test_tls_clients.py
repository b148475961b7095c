"""The three client libraries over TLS, with certificates of their own and without."""

import asyncio
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, Producer
from kafka import KafkaConsumer, KafkaProducer

import cordwood
from cordwood.security.principal import Principal
from fakes.tls_files import TlsFiles
from wire.judges import run_async

TIMEOUT_S = 60.0
KIB = 1024

RoundTrip = Callable[[str, str, "Security", list[bytes], str], list[bytes]]


class Security:
    """What a client needs: the authority, and maybe its own key and certificate."""

    def __init__(self, files: TlsFiles, client: str | None) -> None:
        self.files = files
        self.client = client

    @property
    def librdkafka(self) -> dict[str, str]:
        config = {"security.protocol": "SSL", "ssl.ca.location": self.files.ca}
        if self.client is not None:
            own = {"ssl.certificate.location": self.client, "ssl.key.location": self.client}
            config |= own
        return config


def with_confluent(
    address: str, topic: str, security: Security, values: list[bytes], codec: str
) -> list[bytes]:
    common = {"bootstrap.servers": address, **security.librdkafka}
    producer = Producer(
        {**common, "compression.type": codec, "linger.ms": 5, "message.max.bytes": 8_000_000}
    )
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer({**common, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        messages = consumer.consume(len(values), timeout=TIMEOUT_S)
    finally:
        consumer.close()
    return [message.value() or b"" for message in messages]


def with_kafka_python(
    address: str, topic: str, security: Security, values: list[bytes], codec: str
) -> list[bytes]:
    common = {
        "bootstrap_servers": address,
        "security_protocol": "SSL",
        "ssl_cafile": security.files.ca,
        "ssl_certfile": security.client,
        "ssl_keyfile": security.client,
    }
    kind = None if codec == "none" else codec
    producer = KafkaProducer(**common, compression_type=kind, max_request_size=8_000_000)
    try:
        futures = [producer.send(topic, value) for value in values]
        for future in futures:
            future.get(timeout=TIMEOUT_S)
    finally:
        producer.close(timeout=TIMEOUT_S)
    consumer = KafkaConsumer(
        topic, **common, auto_offset_reset="earliest", consumer_timeout_ms=TIMEOUT_S * 1000
    )
    try:
        return [next(consumer).value for _ in values]
    finally:
        consumer.close()


def with_aiokafka(
    address: str, topic: str, security: Security, values: list[bytes], codec: str
) -> list[bytes]:
    async def run() -> list[bytes]:
        common = {
            "bootstrap_servers": address,
            "security_protocol": "SSL",
            "ssl_context": security.files.client_context(security.client),
        }
        kind = None if codec == "none" else codec
        producer = AIOKafkaProducer(**common, compression_type=kind, max_request_size=8_000_000)
        await producer.start()
        try:
            await asyncio.gather(*[await producer.send(topic, value) for value in values])
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(topic, **common, auto_offset_reset="earliest")
        await consumer.start()
        try:
            return [(await consumer.getone()).value or b"" for _ in values]
        finally:
            await consumer.stop()

    return run_async(run)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return TlsFiles(Path(tmp_path_factory.mktemp("tls")))


@pytest.fixture(scope="module", params=["none", "required"])
def client_auth(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def broker(files: TlsFiles, client_auth: str) -> Iterator[cordwood.Broker]:
    config = files.listener_config(
        ssl_client_auth=client_auth, ssl_principal_mapping_rules="RULE:^CN=(.*?),.*$/$1/"
    )
    with cordwood.Broker(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def security(files: TlsFiles, client_auth: str) -> Security:
    return Security(files, files.client("alice") if client_auth == "required" else None)


@pytest.mark.parametrize(
    "round_trip",
    [with_confluent, with_kafka_python, with_aiokafka],
    ids=["confluent-kafka", "kafka-python", "aiokafka"],
)
@pytest.mark.parametrize(
    ("count", "size", "codec"),
    [(1, 10, "none"), (3000, 100, "lz4"), (200, 10 * KIB, "none"), (8, 900 * KIB, "none")],
    ids=["one", "small and compressed", "pipelined", "large"],
)
def test_records_come_back_as_they_were_sent(
    broker: cordwood.Broker,
    topic: str,
    security: Security,
    round_trip: RoundTrip,
    count: int,
    size: int,
    codec: str,
) -> None:
    values = [
        (hashlib.sha256(str(number).encode()).digest() * (size // 32 + 1))[:size]
        for number in range(count)
    ]

    received = round_trip(broker.bootstrap_servers, topic, security, values, codec)

    assert sorted(received) == sorted(values)


def test_connections_have_the_principal_of_their_certificate(
    broker: cordwood.Broker, topic: str, security: Security, client_auth: str
) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **security.librdkafka})
    producer.produce(topic, b"x")
    assert producer.flush(TIMEOUT_S) == 0

    loops = broker._running()._connections._connections.values()
    found = {connection.session.principal for loop in loops for connection in loop.copy()}

    expected = "alice" if client_auth == "required" else "ANONYMOUS"
    assert Principal("User", expected) in found
