"""Clients under quotas: they slow down to their rate, lose nothing, and disturb nobody."""

import threading
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.security.security_state import QuotaEntity, SecurityState
from fakes.client_batches import client_batch
from wire.quota_requests import alter_quotas, set_quota
from wire.raw_client import RawClient, framed, request_header
from wire.record_requests import Wanted, fetch, fetch_body, produce, produce_body
from wire.waiting import await_true

# A burst is one second's worth, so that tests are short.
CONFIG = {"quota.window.num": 2, "controller.quota.window.num": 1}
KIB = 1024
BATCH = bytes(client_batch(b"x" * 10_000))


@pytest.fixture
def broker() -> Iterator[cordwood.Broker]:
    with cordwood.Broker(topics=["t"], config=CONFIG) as running:
        yield running


def producer(broker: cordwood.Broker, client_id: str, **config: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": client_id,
            "linger.ms": 5,
            "batch.size": 20_000,
            **config,
        }
    )


def values(broker: cordwood.Broker, topic: str) -> list[bytes]:
    return [record.value or b"" for record in broker.store.topic(topic).partition(0).read()]


def produce_all(client: Producer, count: int, size: int = 10 * KIB, topic: str = "t") -> float:
    """How long it takes until so many records are acknowledged, in seconds."""
    began_s = time.monotonic()
    for number in range(count):
        client.produce(topic, str(number).encode().ljust(size, b"."))
    assert client.flush(120) == 0
    return time.monotonic() - began_s


def await_turn(broker: cordwood.Broker) -> None:
    """Until the loops have heard of a change."""
    assert broker._running().is_responsive(60)


# --- produce ------------------------------------------------------------------------------------


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_a_producer_slows_down_to_its_quota_and_loses_nothing(
    broker: cordwood.Broker, acks: str
) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "slow"}, producer_byte_rate=200 * KIB)

    took_s = produce_all(producer(broker, "slow", acks=acks), 80)  # 800 KiB
    if acks == "0":
        began_s = time.monotonic()
        await_true(lambda: len(values(broker, "t")) == 80)
        took_s += time.monotonic() - began_s

    assert 2.0 < took_s < 30  # 4 s, less a burst of 1 s
    assert [int(value.rstrip(b".")) for value in values(broker, "t")] == list(range(80))


def test_two_clients_do_not_affect_each_other(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "slow"}, producer_byte_rate=20 * KIB)
    slow = producer(broker, "slow")
    for _ in range(200):
        slow.produce("t", b"x" * 10 * KIB)
    slow.poll(0)

    took_s = produce_all(producer(broker, "quick"), 100)

    assert took_s < 20
    slow.purge()


def test_the_answer_to_a_produce_says_how_long_the_client_is_muted(
    broker: cordwood.Broker,
) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, producer_byte_rate=1000)
    with RawClient(broker.bootstrap_servers) as client:
        for version in (3, 8, 9, 12):
            client.send(ApiKey.PRODUCE, version, produce_body(version, [("t", 0, BATCH)]))
            _, body = client.receive(ApiKey.PRODUCE, version)
            tail = 1 if version >= 9 else 0
            throttle_ms = int.from_bytes(body[len(body) - tail - 4 : len(body) - tail], "big")

            assert 5_000 < throttle_ms <= 60_000
            set_quota(broker.bootstrap_servers, {"client-id": "raw"}, producer_byte_rate=None)
            set_quota(broker.bootstrap_servers, {"client-id": "raw"}, producer_byte_rate=1000)
            await_turn(broker)
    assert len(values(broker, "t")) == 4


def test_a_changed_quota_ends_the_pauses_of_the_old_one(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, producer_byte_rate=1)
    server = broker._running()
    with RawClient(broker.bootstrap_servers) as client:
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [("t", 0, BATCH)]))
        client.receive(ApiKey.PRODUCE, 9)  # at once
        assert server._connections.muted_count == 1
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [("t", 0, BATCH)]))

        set_quota(broker.bootstrap_servers, {"client-id": "raw"}, producer_byte_rate=10**9)

        client.receive(ApiKey.PRODUCE, 9)
    assert len(values(broker, "t")) == 2


def test_requests_behind_a_muted_one_are_carried_out_after_the_client_left(
    broker: cordwood.Broker,
) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, producer_byte_rate=10_000)
    with RawClient(broker.bootstrap_servers) as client:
        for _ in range(3):
            client.send(ApiKey.PRODUCE, 9, produce_body(9, [("t", 0, BATCH)]))
        client.receive(ApiKey.PRODUCE, 9)

    await_true(lambda: len(values(broker, "t")) == 3)
    await_true(lambda: broker._running().connection_count == 0)


def test_a_broker_with_muted_connections_stops_at_once(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, producer_byte_rate=1)
    clients = [RawClient(broker.bootstrap_servers) for _ in range(10)]
    for client in clients:
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [("t", 0, BATCH)]))
        client.send(ApiKey.PRODUCE, 9, produce_body(9, [("t", 0, BATCH)]))
        client.receive(ApiKey.PRODUCE, 9)
    assert broker._running()._connections.muted_count == 10

    began_s = time.monotonic()
    broker.stop()

    assert time.monotonic() - began_s < 5
    for client in clients:
        client.socket.close()


def test_a_hundred_thousand_client_ids_leave_the_broker_as_it_was(
    broker: cordwood.Broker,
) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": None}, request_percentage=50.0)
    with RawClient(broker.bootstrap_servers) as client, client.socket.makefile("rb") as answers:
        for begin in range(0, 100_000, 500):
            numbers = range(begin, begin + 500)
            headers = [request_header(ApiKey.METADATA, 1, n, f"client-{n}") for n in numbers]
            client.send_bytes(b"".join(framed(header + b"\0\0\0\0") for header in headers))
            # All answers have the size of the first.
            first = answers.read(4)
            size = 4 + int.from_bytes(first, "big")
            whole = first + answers.read(500 * size - 4)
            answered = [whole[at : at + 8] for at in range(0, 500 * size, size)]
            assert answered == [first + number.to_bytes(4, "big") for number in numbers]

    assert broker._running().quotas.view().tracked <= 10_000


# --- fetch --------------------------------------------------------------------------------------


def consumer(broker: cordwood.Broker, client_id: str, **config: object) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": broker.bootstrap_servers,
            "client.id": client_id,
            "group.id": client_id,
            "auto.offset.reset": "earliest",
            "fetch.message.max.bytes": 100 * KIB,
            "fetch.wait.max.ms": 50,
            **config,
        }
    )


def consume(client: Consumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    deadline_s = time.monotonic() + 120
    while len(found) < count and time.monotonic() < deadline_s:
        for message in client.consume(100, 0.1):
            assert message.error() is None, message.error()
            found.append(message.value() or b"")
    return found


def test_a_consumer_slows_down_to_its_quota_and_misses_nothing(broker: cordwood.Broker) -> None:
    produce_all(producer(broker, "p"), 80)
    set_quota(broker.bootstrap_servers, {"client-id": "slow"}, consumer_byte_rate=200 * KIB)
    client = consumer(broker, "slow")
    client.assign([TopicPartition("t", 0, 0)])

    began_s = time.monotonic()
    found = consume(client, 80)
    took_s = time.monotonic() - began_s
    client.close()

    assert 2.0 < took_s < 30
    assert [int(value.rstrip(b".")) for value in found] == list(range(80))


def test_a_throttled_fetch_is_answered_empty_at_once(broker: cordwood.Broker) -> None:
    with RawClient(broker.bootstrap_servers) as client:
        for _ in range(4):
            produce(client, "t", BATCH)
        set_quota(broker.bootstrap_servers, {"client-id": "raw"}, consumer_byte_rate=10_500)
        first = fetch(client, [Wanted(topic="t", max_bytes=10_000)])
        began_s = time.monotonic()
        second = fetch(client, [Wanted(topic="t", max_bytes=10_000)])
        answered_s = time.monotonic() - began_s
        third = fetch(client, [Wanted(topic="t", max_bytes=10_000)])
        read_s = time.monotonic() - began_s

    assert first.throttle_time_ms == 0
    assert len(first.responses) == 1
    assert 100 < second.throttle_time_ms < 1100
    assert second.responses == []
    assert answered_s < read_s
    assert len(third.responses) == 1
    assert 0.1 < read_s < 20


def test_a_consumer_with_a_tiny_quota_still_makes_progress(broker: cordwood.Broker) -> None:
    """A batch is larger than what the quota allows in its whole window."""
    with RawClient(broker.bootstrap_servers) as source:
        for _ in range(2):
            produce(source, "t", BATCH)
    set_quota(broker.bootstrap_servers, {"client-id": "slow"}, consumer_byte_rate=5 * KIB)
    client = consumer(broker, "slow")
    client.assign([TopicPartition("t", 0, 0)])

    found = consume(client, 2)

    client.close()
    assert len(found) == 2


def test_a_throttled_consumer_stays_in_its_group(broker: cordwood.Broker) -> None:
    produce_all(producer(broker, "p"), 60)
    set_quota(broker.bootstrap_servers, {"client-id": "slow"}, consumer_byte_rate=50 * KIB)
    revoked = threading.Event()
    client = consumer(broker, "slow", **{"session.timeout.ms": 6000, "heartbeat.interval.ms": 500})
    client.subscribe(["t"], on_revoke=lambda *_: revoked.set(), on_lost=lambda *_: revoked.set())

    found = consume(client, 60)  # 12 s at this rate

    assert len(found) == 60
    assert not revoked.is_set()
    client.close()


# --- the time of handlers -----------------------------------------------------------------------


def test_requests_that_take_much_time_are_spread(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, request_percentage=0.001)
    with RawClient(broker.bootstrap_servers) as client:
        throttles = [
            client.call(ApiKey.METADATA, 8, {"topics": None}).throttle_time for _ in range(4)
        ]
        seen = client.call(ApiKey.LIST_GROUPS, 4, {}).throttle_time

    assert max(*throttles, seen) > 0
    assert max(*throttles, seen) <= 1000  # one sample at most


def test_fetches_and_produces_count_as_requests_too(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, request_percentage=0.0001)
    with RawClient(broker.bootstrap_servers) as client:
        produce(client, "t", BATCH)
        answers = [fetch(client, [Wanted(topic="t")]) for _ in range(2)]

    assert any(answer.throttle_time_ms > 0 for answer in answers)


def test_the_time_to_read_a_request_counts_even_if_it_is_refused_at_once() -> None:
    limits = {QuotaEntity(client_id="raw"): {"request_percentage": 0.1}}
    topics = [{"topic": f"{number}", "partitions": [0]} for number in range(50_000)]
    with (
        cordwood.Broker(config={"authorizer.class.name": "standard", **CONFIG}) as guarded,
        RawClient(guarded.bootstrap_servers) as client,
    ):
        guarded._running().security_file.change(lambda _: SecurityState(quotas=limits))
        answer = client.call(ApiKey.DESCRIBE_LOG_DIRS, 4, {"topics": topics})

    assert answer.error_code == ErrorCode.cluster_authorization_failed
    assert answer.throttle_time == 1000  # a millisecond of the handler alone would cost less


# --- creating and deleting ----------------------------------------------------------------------


def test_too_many_new_partitions_are_refused_until_they_are_paid_for(
    broker: cordwood.Broker,
) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, controller_mutation_rate=5.0)
    with RawClient(broker.bootstrap_servers) as client:
        answers = [
            client.call(
                ApiKey.CREATE_TOPICS,
                7,
                {
                    "topics": [{"name": name, "num_partitions": 10, "replication_factor": 1}],
                    "timeout": 10_000,
                },
            )
            for name in ("first", "second", "second")  # it is muted before the third
        ]

    assert [answer.topics[0].error_code for answer in answers] == [
        0,
        ErrorCode.throttling_quota_exceeded,
        0,
    ]
    assert "retry in" in answers[1].topics[0].error_message
    assert 0 < answers[1].throttle_time <= 1000


def test_old_clients_get_their_topics_and_are_muted(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, controller_mutation_rate=1000.0)
    with RawClient(broker.bootstrap_servers) as client:
        request = {
            "topics": [{"name": "old", "num_partitions": 1500, "replication_factor": 1}],
            "timeout": 10_000,
        }
        created = client.call(ApiKey.CREATE_TOPICS, 5, request)
        deleted = client.call(ApiKey.DELETE_TOPICS, 4, {"topic_names": ["old"], "timeout": 10_000})

    assert created.topics[0].error_code == 0
    assert 0 < created.throttle_time <= 500
    assert deleted.responses[0].error_code == 0
    assert deleted.throttle_time > 0


def test_new_partitions_count_as_created_ones(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, controller_mutation_rate=2.0)
    with RawClient(broker.bootstrap_servers) as client:
        growth = {"topics": [{"name": "t", "count": 20, "assignments": None}], "timeout": 1000}
        grown = client.call(ApiKey.CREATE_PARTITIONS, 3, growth)
        growth["topics"][0]["count"] = 21  # type: ignore[index]  # a plain request
        again = client.call(ApiKey.CREATE_PARTITIONS, 3, growth)

    assert grown.results[0].error_code == 0
    assert again.results[0].error_code == ErrorCode.throttling_quota_exceeded
    assert again.throttle_time > 5000


def test_topics_that_metadata_creates_count_as_created_ones(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"client-id": "raw"}, controller_mutation_rate=2.0)
    names = [f"auto-{number}" for number in range(20)]
    wanted = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": True}
    with RawClient(broker.bootstrap_servers) as client:
        answer = client.call(ApiKey.METADATA, 12, wanted)

    created = [topic.name for topic in answer.topics if not topic.error_code]
    assert 0 < len(created) < 10
    assert {topic.error_code for topic in answer.topics if topic.name not in created} == {
        ErrorCode.leader_not_available  # it asks again
    }
    assert set(names) & set(broker._running().store.topics()) == set(created)


# --- connections --------------------------------------------------------------------------------


def connect(broker: cordwood.Broker, count: int) -> float:
    """How long it takes until so many connections were answered, in seconds."""
    began_s = time.monotonic()
    for _ in range(count):
        with RawClient(broker.bootstrap_servers) as client:
            assert client.is_answered()
    return time.monotonic() - began_s


def test_an_address_connects_no_faster_than_its_quota(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"ip": "127.0.0.1"}, connection_creation_rate=10)

    took_s = connect(broker, 30)

    assert 1.5 < took_s < 20  # 2 s behind the burst
    set_quota(broker.bootstrap_servers, {"ip": "127.0.0.1"}, connection_creation_rate=None)
    assert connect(broker, 30) < 5


def test_another_address_is_not_affected(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"ip": "10.0.0.1"}, connection_creation_rate=1)

    assert connect(broker, 30) < 20  # at that rate it would take more than 25 s


def test_clients_that_would_wait_long_are_refused(broker: cordwood.Broker) -> None:
    set_quota(broker.bootstrap_servers, {"ip": None}, connection_creation_rate=1)
    clients = [RawClient(broker.bootstrap_servers) for _ in range(30)]

    assert clients[0].is_answered()
    assert clients[29].is_closed_by_broker()
    began_s = time.monotonic()
    broker.stop()  # with clients that wait

    assert time.monotonic() - began_s < 5
    for client in clients:
        client.socket.close()


@pytest.mark.parametrize(
    "key", ["max.connection.creation.rate", "listener.name.plaintext.max.connection.creation.rate"]
)
def test_the_broker_and_each_listener_have_a_rate_too(key: str) -> None:
    config = {**CONFIG, key: 10, "listeners": "PLAINTEXT://127.0.0.1:0"}
    with cordwood.Broker(config=config) as broker:
        took_s = connect(broker, 30)

    assert 1.5 < took_s < 20


# --- APIs 48 and 49 -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_set_described_and_removed(broker: cordwood.Broker, version: int) -> None:
    address = broker.bootstrap_servers
    alter_quotas(address, {"user": "alice"}, {"producer_byte_rate": 5.0}, version=version)
    alter_quotas(
        address,
        {"user": None, "client-id": "app"},
        {"consumer_byte_rate": 7.0, "request_percentage": 12.5},
        version=version,
    )
    with RawClient(address) as client:
        found = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, {"components": []})
        broker.restart()
    with RawClient(address) as client:
        after = client.call(ApiKey.DESCRIBE_CLIENT_QUOTAS, version, {"components": []})

    assert found.error_code == 0
    assert [
        (
            [(part.entity_type, part.entity_name) for part in entry.entity],
            {value.key: value.value for value in entry.values},
        )
        for entry in found.entries
    ] == [
        (
            [("user", None), ("client-id", "app")],
            {"consumer_byte_rate": 7.0, "request_percentage": 12.5},
        ),
        ([("user", "alice")], {"producer_byte_rate": 5.0}),
    ]
    assert after.entries == found.entries


def test_a_wrong_quota_is_refused_by_itself_and_a_trial_changes_nothing(
    broker: cordwood.Broker,
) -> None:
    address = broker.bootstrap_servers

    answers = [
        alter_quotas(address, {"user": "a"}, {"speed": 1.0}),
        alter_quotas(address, {"user": "a"}, {"producer_byte_rate": -1.0}),
        alter_quotas(address, {"user": "a", "ip": "::1"}, {"connection_creation_rate": 1.0}),
        alter_quotas(address, {"ip": "nowhere.example"}, {"connection_creation_rate": 1.0}),
        alter_quotas(address, {}, {"producer_byte_rate": 1.0}),
    ]
    trial = alter_quotas(address, {"user": "a"}, {"producer_byte_rate": 1.0}, validate_only=True)

    assert [answer.error_code for answer in answers] == [ErrorCode.invalid_request] * 5
    assert trial.error_code == 0
    assert broker._running().security_file.state.quotas == {}


def test_fetch_and_produce_pay_nothing_without_quotas(broker: cordwood.Broker) -> None:
    """One attribute is looked at: the table of clients stays empty."""
    with RawClient(broker.bootstrap_servers) as client:
        produce(client, "t", BATCH)
        client.send(ApiKey.FETCH, 12, fetch_body(12, [Wanted(topic="t")]))
        client.receive(ApiKey.FETCH, 12)

    quotas = broker._running().quotas
    assert not quotas.is_set
    assert quotas._clients == {}
