"""Real clients log in by every mechanism they have, and are told when they may not."""

import asyncio
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import aiokafka
import kafka
import pytest
from aiokafka.abc import AbstractTokenProvider as AioTokens
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.admin import ScramMechanism as TheirMechanism
from kafka.errors import KafkaError as PythonKafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokens

import cordwood
from fakes.tls_files import TlsFiles
from wire.judges import Kcat
from wire.sasl_brokers import ALICE, PASSWORD, add_users, sasl_broker, token

PASSWORDS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
MECHANISMS = (*PASSWORDS, "OAUTHBEARER")
TIMEOUT_S = 30.0


class Guarded(NamedTuple):
    """A broker, and how its clients connect; with TLS, `ca` is the authority they trust."""

    broker: cordwood.Broker
    protocol: str = "SASL_PLAINTEXT"
    ca: str | None = None

    @property
    def address(self) -> str:
        return self.broker.bootstrap_servers


@pytest.fixture(scope="module", params=["SASL_PLAINTEXT", "SASL_SSL"])
def guarded(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Guarded]:
    directory, ca = tmp_path_factory.mktemp("sasl"), None
    config: dict[str, object] = {}
    if request.param == "SASL_SSL":
        files = TlsFiles(directory)
        config = {**files.listener_config(), "listeners": "SASL_SSL://127.0.0.1:0"}
        config["sasl.plain.insecure"] = "false"
        ca = files.ca
    with sasl_broker(directory, config, topics=["t"]) as broker:
        add_users(broker, (ALICE, PASSWORD))
        yield Guarded(broker, request.param, ca)


# --- confluent-kafka -----------------------------------------------------------------------------


def issue(_config: str) -> tuple[str, float]:
    return token(), time.time() + 300


def confluent(
    guarded: Guarded, mechanism: str, password: str = PASSWORD, **more: Any
) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap.servers": guarded.address,
        "security.protocol": guarded.protocol,
        "sasl.mechanism": mechanism,
    }
    if guarded.ca is not None:
        config["ssl.ca.location"] = guarded.ca
    if mechanism == "OAUTHBEARER":
        config["oauth_cb"] = issue
    else:
        config |= {"sasl.username": ALICE, "sasl.password": password}
    return config | more


def consumed(consumer: Consumer, wanted: bytes) -> bool:
    deadline_s = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        message = consumer.poll(0.5)
        if message is not None and message.error() is None and message.value() == wanted:
            return True
    return False


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka_produces_and_consumes(guarded: Guarded, mechanism: str) -> None:
    value = f"by {mechanism}".encode()
    errors: list[KafkaError | None] = []
    producer = Producer(confluent(guarded, mechanism))
    producer.produce("t", value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    consumer = Consumer(
        confluent(
            guarded,
            mechanism,
            **{"group.id": f"g-{mechanism}", "auto.offset.reset": "earliest"},
        )
    )
    consumer.subscribe(["t"])

    assert errors == [None]
    assert consumed(consumer, value)
    consumer.close()


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_librdkafka_is_told_that_the_password_is_wrong(guarded: Guarded, mechanism: str) -> None:
    errors: list[KafkaError] = []
    quiet = {"error_cb": errors.append, "log_level": 0, "reconnect.backoff.ms": 1000}
    producer = Producer(confluent(guarded, mechanism, "wrong", **quiet))
    deadline_s = time.monotonic() + TIMEOUT_S

    while not errors and time.monotonic() < deadline_s:
        producer.poll(0.1)

    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "invalid credentials" in errors[0].str()


def test_librdkafka_authenticates_again_while_it_produces(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    config = {"connections.max.reauth.ms": 1500}
    directory = tmp_path_factory.mktemp("again")
    with sasl_broker(directory, config, topics=["t"]) as broker:
        add_users(broker, (ALICE, PASSWORD))
        failed: list[KafkaError] = []
        producer = Producer(confluent(Guarded(broker), "SCRAM-SHA-256") | {"linger.ms": 0})

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(error)

        counts = broker._running().authentications.counts
        deadline_s = time.monotonic() + TIMEOUT_S
        sent = 0
        while sum(counts.view().values()) < 5 and time.monotonic() < deadline_s:
            producer.produce("t", b"value", on_delivery=delivered)
            threading.Event().wait(0.01)  # hundreds of records do
            producer.poll(0)
            sent += 1
        assert producer.flush(TIMEOUT_S) == 0
        results = {result for _, _, result in counts.view()}
        accepted = broker._running().metrics.view().connections_accepted
        end = broker.store.topic("t").partition(0).end_offset

    assert failed == []
    assert results == {"succeeded"}
    assert end == sent
    assert accepted <= 3  # it did not connect again


def test_librdkafka_manages_users(guarded: Guarded) -> None:
    admin = AdminClient(confluent(guarded, "SCRAM-SHA-512"))
    info = ScramCredentialInfo(TheirMechanism.SCRAM_SHA_256, 8192)
    upsertion = UserScramCredentialUpsertion("dora", info, b"d")

    for future in admin.alter_user_scram_credentials([upsertion]).values():
        future.result(TIMEOUT_S)
    asked: Any = admin.describe_user_scram_credentials(["dora"])
    described = asked["dora"].result(TIMEOUT_S)
    dora = AdminClient(
        confluent(guarded, "SCRAM-SHA-256") | {"sasl.username": "dora", "sasl.password": "d"}
    )
    listed = dora.list_topics(timeout=TIMEOUT_S)
    deletion = UserScramCredentialDeletion("dora", TheirMechanism.SCRAM_SHA_256)
    for future in admin.alter_user_scram_credentials([deletion]).values():
        future.result(TIMEOUT_S)
    listing: Any = admin.describe_user_scram_credentials()
    everybody = listing.result(TIMEOUT_S)

    [found] = described.scram_credential_infos
    assert (found.mechanism, found.iterations) == (TheirMechanism.SCRAM_SHA_256, 8192)
    assert "t" in listed.topics
    assert ALICE in everybody
    assert "dora" not in everybody


# --- kafka-python --------------------------------------------------------------------------------


class PythonIssuer(PythonTokens):  # type: ignore[misc]
    def token(self) -> str:
        return token()


def python(guarded: Guarded, mechanism: str, password: str = PASSWORD) -> Mapping[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": guarded.address,
        "security_protocol": guarded.protocol,
        "sasl_mechanism": mechanism,
    }
    if guarded.ca is not None:
        config["ssl_cafile"] = guarded.ca
    if mechanism == "OAUTHBEARER":
        return config | {"sasl_oauth_token_provider": PythonIssuer()}
    return config | {"sasl_plain_username": ALICE, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_and_consumes(guarded: Guarded, mechanism: str) -> None:
    value = f"python by {mechanism}".encode()
    producer = kafka.KafkaProducer(**python(guarded, mechanism))
    sent = producer.send("t", value).get(TIMEOUT_S)
    producer.close()
    consumer = kafka.KafkaConsumer(
        "t",
        auto_offset_reset="earliest",
        consumer_timeout_ms=int(TIMEOUT_S * 1000),
        **python(guarded, mechanism),
    )

    assert sent.topic == "t"
    assert any(record.value == value for record in consumer)
    consumer.close()


def test_kafka_python_is_told_that_the_password_is_wrong(guarded: Guarded) -> None:
    with pytest.raises(PythonKafkaError):
        kafka.KafkaConsumer(**python(guarded, "SCRAM-SHA-256", "wrong"), bootstrap_timeout_ms=1000)


# --- aiokafka ------------------------------------------------------------------------------------


class AioIssuer(AioTokens):  # type: ignore[misc]
    async def token(self) -> str:
        return token()


def aio(guarded: Guarded, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    config: dict[str, Any] = {
        "bootstrap_servers": guarded.address,
        "security_protocol": guarded.protocol,
        "sasl_mechanism": mechanism,
    }
    if guarded.ca is not None:
        config["ssl_context"] = ssl.create_default_context(cafile=guarded.ca)
    if mechanism == "OAUTHBEARER":
        return config | {"sasl_oauth_token_provider": AioIssuer()}
    return config | {"sasl_plain_username": ALICE, "sasl_plain_password": password}


def run_with_producer(
    config: Callable[[], dict[str, Any]], value: bytes
) -> aiokafka.structs.RecordMetadata:
    async def run() -> aiokafka.structs.RecordMetadata:
        producer = aiokafka.AIOKafkaProducer(**config())
        try:
            await producer.start()
            return await producer.send_and_wait("t", value)
        finally:
            await producer.stop()

    return asyncio.run(asyncio.wait_for(run(), TIMEOUT_S))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces(guarded: Guarded, mechanism: str) -> None:
    sent = run_with_producer(lambda: aio(guarded, mechanism), b"aio")

    assert sent.topic == "t"


def test_aiokafka_is_told_that_the_password_is_wrong(guarded: Guarded) -> None:
    with pytest.raises(AioKafkaError):
        run_with_producer(lambda: aio(guarded, "PLAIN", "wrong"), b"aio")


@pytest.mark.parametrize("mechanism", PASSWORDS)
def test_kcat_logs_in(guarded: Guarded, mechanism: str) -> None:
    kcat = Kcat.find()
    if kcat is None:
        pytest.skip("kcat is not installed")
    settings = {
        "security.protocol": guarded.protocol,
        "sasl.mechanism": mechanism,
        "sasl.username": ALICE,
        "sasl.password": PASSWORD,
        **({"ssl.ca.location": guarded.ca} if guarded.ca else {}),
    }
    options = [part for key, value in settings.items() for part in ("-X", f"{key}={value}")]

    assert b'topic "t"' in kcat.run("-b", guarded.address, *options, "-L")
