"""A protected broker and every kind of client: as `cordwood.Broker` says that they connect."""

import asyncio
import ssl
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

import cordwood
from cordwood.clock import SystemClock
from cordwood.errors import (
    AuthenticationFailedError,
    BrokerNotTrustedError,
    BrokerRefusedError,
    BrokerUnreachableError,
    ConfigError,
)
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_producer import RemoteProducer
from cordwood.remote.remote_topics import RemoteTopics
from cordwood.security.clients.client_security import ClientProtocol, ClientSecurity
from cordwood.testing import Broker, BrokerSecurity, allow, deny

_USERS = {"alice": "pen,cil=1", "bob": 'b"o\\b'}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with cordwood.Broker(
        security="sasl_ssl",
        users=_USERS,
        acls=[allow("alice"), *(allow("alice", topic="*"), allow("alice", group="*"))],
        topics=["orders"],
    ) as running:
        yield running


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
def test_confluent_kafka_writes_and_reads(broker: Broker, mechanism: str) -> None:
    settings = broker.client_config(user="alice", mechanism=mechanism)
    producer = Producer(settings)
    producer.produce("orders", mechanism.encode())
    assert producer.flush(30) == 0
    consumer = Consumer({**settings, "group.id": f"g-{mechanism}", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])

    seen: list[bytes] = []
    deadline_s = time.monotonic() + 30
    while mechanism.encode() not in seen and time.monotonic() < deadline_s:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            seen.append(message.value() or b"")
    consumer.close()

    assert mechanism.encode() in seen


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "PLAIN"])
def test_kafka_python_writes_and_reads(broker: Broker, mechanism: str) -> None:
    settings = broker.kafka_python_config(user="alice", mechanism=mechanism)
    with KafkaProducer(**settings) as producer:
        producer.send("orders", b"kafka-python").get(30)

    consumer = KafkaConsumer(
        "orders", **settings, auto_offset_reset="earliest", consumer_timeout_ms=30_000
    )
    try:
        assert any(message.value == b"kafka-python" for message in consumer)
    finally:
        consumer.close()


def test_aiokafka_writes_and_reads(broker: Broker) -> None:
    async def write_and_read() -> bytes:
        settings = broker.aiokafka_config(user="alice")
        async with AIOKafkaProducer(**settings) as producer:
            sent = await producer.send_and_wait("orders", b"aiokafka")
        async with AIOKafkaConsumer(**settings) as consumer:
            place = TopicPartition("orders", sent.partition)
            consumer.assign([place])
            consumer.seek(place, sent.offset)
            found = await asyncio.wait_for(consumer.getone(), 30)
            return bytes(found.value)

    assert asyncio.run(write_and_read()) == b"aiokafka"


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"])
@pytest.mark.parametrize("user", list(_USERS))
def test_our_own_client_connects(broker: Broker, user: str, mechanism: str) -> None:
    security = broker.client_security(user, mechanism=mechanism)

    with RemoteCluster([(broker.host, broker.port)], security=security) as cluster:
        topics = cluster.describe(None)

    assert ("orders" in topics) == (user == "alice")


def test_rules_decide_what_a_user_may_do(broker: Broker) -> None:
    producer = Producer({**broker.client_config(user="bob"), "message.timeout.ms": 10_000})
    refusals: list[KafkaError | None] = []

    producer.produce("orders", b"x", on_delivery=lambda error, _: refusals.append(error))
    producer.flush(30)

    (refusal,) = refusals
    assert refusal is not None
    assert refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_our_client_reports_a_refusal(broker: Broker) -> None:
    security = broker.client_security("bob")

    with (
        RemoteCluster([(broker.host, broker.port)], security=security) as cluster,
        pytest.raises(BrokerRefusedError, match="authorization_failed"),
    ):
        RemoteTopics(cluster).create("mine", partitions=1, config={})


def test_our_producer_needs_no_more_rights_than_another() -> None:
    rules = [allow("bob", "WRITE", topic="orders"), allow("bob", "DESCRIBE", topic="orders")]
    with cordwood.Broker(
        security="sasl_ssl", users=_USERS, acls=rules, topics=["orders"]
    ) as running:
        address = [(running.host, running.port)]
        with RemoteCluster(address, security=running.client_security("bob")) as cluster:
            (placed,) = RemoteProducer(cluster, "orders", SystemClock()).append_many([(b"k", b"v")])

    assert (placed.first_offset, placed.next_offset) == (0, 1)


def test_a_wrong_password_is_refused(broker: Broker) -> None:
    admin = AdminClient({**broker.client_config(user="alice"), "sasl.password": "wrong"})

    with pytest.raises(KafkaException):
        admin.list_topics(timeout=5)
    for mechanism in ("PLAIN", "SCRAM-SHA-256"):
        wrong = ClientSecurity(
            protocol=ClientProtocol.SASL_SSL,
            trust=broker.client_security("alice").trust,
            mechanism=mechanism,
            user="alice",
            password=broker.client_security("bob").password,
        )
        with pytest.raises(AuthenticationFailedError, match="does not accept user 'alice'"):
            RemoteCluster([(broker.host, broker.port)], security=wrong)


def test_the_certificate_is_for_this_machine_and_from_an_authority_of_its_own(
    broker: Broker,
) -> None:
    security = broker.client_security("alice")
    for host in ("localhost", "127.0.0.1"):
        RemoteCluster([(host, broker.port)], security=security).close()

    unknown = ClientSecurity(
        protocol=ClientProtocol.SASL_SSL, user="alice", password=security.password
    )
    with pytest.raises(BrokerNotTrustedError, match="--ca FILE"):
        RemoteCluster([(broker.host, broker.port)], security=unknown)
    assert ssl.create_default_context(cafile=broker.ca_file).cert_store_stats()["x509_ca"] == 1


def test_the_wrong_protocol_is_reported_with_what_to_do(broker: Broker) -> None:
    with pytest.raises(BrokerUnreachableError, match="if the listener uses TLS, pass --tls"):
        RemoteCluster([(broker.host, broker.port)])
    with (
        pytest.raises(BrokerUnreachableError, match="require a user"),
        RemoteCluster(
            [(broker.host, broker.port)],
            security=ClientSecurity(
                protocol=ClientProtocol.SSL, trust=broker.client_security("alice").trust
            ),
        ) as cluster,
    ):
        cluster.describe([])


def test_tls_to_a_plain_listener_is_reported(broker: Broker) -> None:
    with cordwood.Broker() as plain, pytest.raises(BrokerUnreachableError, match="TLS"):
        RemoteCluster(
            [(plain.host, plain.port)],
            security=ClientSecurity(
                protocol=ClientProtocol.SSL, trust=broker.client_security("alice").trust
            ),
        )


def test_sessions_are_renewed_before_they_expire() -> None:
    with cordwood.Broker(
        security="sasl_plaintext",
        users={"alice": "x"},
        config={"connections.max.reauth.ms": 1500},
    ) as broker:
        security = broker.client_security()
        with RemoteCluster([(broker.host, broker.port)], security=security) as cluster:
            connection = cluster.anyone()
            until_s = time.monotonic() + 4

            while time.monotonic() < until_s:
                cluster.describe([])
                threading.Event().wait(0.01)  # hundreds of requests do

            assert cluster.anyone() is connection


def test_a_mechanism_that_is_not_offered_is_reported() -> None:
    with cordwood.Broker(security="sasl_plaintext", users={"alice": "x"}) as broker:
        security = broker.client_security(mechanism="PLAIN")

        with pytest.raises(AuthenticationFailedError, match="it offers SCRAM-SHA-256"):
            RemoteCluster([(broker.host, broker.port)], security=security)


def test_certificates_name_the_user() -> None:
    with cordwood.Broker(
        security=BrokerSecurity(
            protocol="ssl", acls=[allow("carol", topic="*"), deny("carol", "write", topic="no*")]
        ),
        topics=["orders", "nothing"],
    ) as broker:
        producer = Producer({**broker.client_config(user="carol"), "message.timeout.ms": 10_000})
        errors: dict[str, KafkaError | None] = {}

        for topic in ("orders", "nothing"):
            producer.produce(
                topic,
                b"x",
                on_delivery=lambda error, sent: errors.__setitem__(sent.topic() or "", error),
            )
        producer.flush(30)

        assert errors["orders"] is None
        refused = errors["nothing"]
        assert refused is not None
        assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        anonymous = ClientSecurity(
            protocol=ClientProtocol.SSL, trust=broker.client_security("carol").trust
        )
        # The broker's alert may be lost when it closes the connection.
        either = (AuthenticationFailedError, BrokerUnreachableError)
        with pytest.raises(either, match=r"require.* a certificate of the client"):
            RemoteCluster([(broker.host, broker.port)], security=anonymous)


def test_users_survive_a_restart_and_the_files_do_not_survive_the_broker(tmp_path: Path) -> None:
    broker = cordwood.Broker(tmp_path / "data", security="sasl_ssl", users=_USERS)
    with broker:
        broker.restart()
        ca = Path(broker.ca_file)
        AdminClient(broker.client_config(user="bob")).list_topics(timeout=30)
        assert ca.exists()

    assert not ca.exists()
    assert (tmp_path / "data").exists()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ConfigError, match="must be one of SSL"):
        cordwood.Broker(security="tls")
    with pytest.raises(ConfigError, match="certificates, no passwords"):
        cordwood.Broker(security="ssl", users={"a": "b"})
    with pytest.raises(TypeError, match="need security"):
        cordwood.Broker(users={"a": "b"})
    with pytest.raises(ConfigError, match="must be one of all, read"):
        allow("alice", "look", topic="x")
    assert "secret" not in repr(BrokerSecurity(users={"alice": "secret"}))
