"""A broker that stops and comes back: who commits, consumes and produces notices only the pause."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import cordwood
from fakes.reserved_port import reserved_port
from wire.judges import JUDGES, Judge, Sent
from wire.members import MEMBERS, TIMEOUT_S, ConfluentMember, Crew

every_kind = pytest.mark.parametrize("kind", MEMBERS.values(), ids=MEMBERS)
stopping = pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])


@pytest.fixture
def crew() -> Iterator[Crew]:
    with Crew() as members:
        yield members


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[cordwood.Broker]:
    """Its data is on the disk when it says so, and it comes back at the same address."""
    config = {"group.min.session.timeout.ms": 100, "log.dir.free.bytes.min": 0}
    with (
        reserved_port() as port,
        cordwood.Broker(tmp_path / "data", port, config=config, topics={"t": 2}) as running,
    ):
        yield running


def come_back(broker: cordwood.Broker, *, is_killed: bool) -> None:
    if is_killed:
        broker.kill()
        broker.start()
    else:
        broker.restart()


@stopping
@every_kind
def test_what_was_committed_is_where_one_goes_on(
    own_broker: cordwood.Broker, crew: Crew, kind: Any, is_killed: bool
) -> None:
    for log in own_broker.store.topic("t").partitions:
        log.append_many([(None, b"%d" % number) for number in range(10)])
    first = crew.add(kind, own_broker.bootstrap_servers, "g", ["t"])
    crew.poll_until(lambda: len(first.received) == 20, "not all was received")
    first.commit()
    crew.dismiss(first)

    come_back(own_broker, is_killed=is_killed)
    own_broker.store.topic("t").partition(1).append(b"new")
    second = crew.add(kind, own_broker.bootstrap_servers, "g", ["t"])

    crew.poll_until(lambda: bool(second.received), "nothing was received")
    assert second.received == [("t", 1, 10, b"new")]


@stopping
@pytest.mark.parametrize(
    ("kind", "options"),
    [(kind, {}) for kind in MEMBERS.values()] + [(ConfluentMember, {"protocol": "consumer"})],
    ids=[*MEMBERS, "confluent-kafka, consumer protocol"],
)
def test_a_running_consumer_goes_on_after_the_pause(
    own_broker: cordwood.Broker, crew: Crew, kind: Any, options: dict[str, str], is_killed: bool
) -> None:
    member = crew.add(kind, own_broker.bootstrap_servers, "g", ["t"], **options)
    crew.await_shared({("t", 0), ("t", 1)})
    own_broker.store.topic("t").partition(0).append(b"before")
    crew.poll_until(lambda: bool(member.received), "nothing was received")

    come_back(own_broker, is_killed=is_killed)
    own_broker.store.topic("t").partition(0).append(b"after")

    crew.poll_until(lambda: len(member.received) >= 2, "nothing was received after the pause")
    assert [value for *_, value in member.received] == [b"before", b"after"]
    member.commit()
    assert own_broker.store.group("g").committed("t", 0) == 2


@stopping
def test_a_running_producer_goes_on_after_the_pause(
    own_broker: cordwood.Broker, is_killed: bool
) -> None:
    producer = Producer(
        {
            "bootstrap.servers": own_broker.bootstrap_servers,
            "enable.idempotence": True,
            "linger.ms": 0,
            "reconnect.backoff.max.ms": 200,
        }
    )
    for number in range(10):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0

    come_back(own_broker, is_killed=is_killed)
    for number in range(10, 20):
        producer.produce("t", b"%d" % number, partition=0)
    assert producer.flush(TIMEOUT_S) == 0

    stored = [record.value for record in own_broker.store.topic("t").partition(0).read(0)]
    assert stored == [b"%d" % number for number in range(20)]


@stopping
@pytest.mark.parametrize("judge", JUDGES.values(), ids=JUDGES)
def test_records_and_their_offsets_are_as_they_were(
    own_broker: cordwood.Broker, judge: Judge, is_killed: bool
) -> None:
    records = [Sent(value=b"%d" % number) for number in range(100)]
    judge.produce(own_broker.bootstrap_servers, "t", records, codec="gzip")
    before = judge.consume(own_broker.bootstrap_servers, "t", 100)

    come_back(own_broker, is_killed=is_killed)

    assert judge.consume(own_broker.bootstrap_servers, "t", 100) == before
    assert judge.produce(own_broker.bootstrap_servers, "t", [Sent()]) == [100]
