"""A broker process that is killed, stopped and watched while clients use it."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message, Producer
from kafka import KafkaProducer

import cordwood
from cordwood.errors import DirectoryLockedError
from wire.served_process import ServedProcess

PARTITIONS = 3
TIMEOUT_S = 120.0


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedProcess]:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("t", partitions=PARTITIONS)
    with ServedProcess(
        tmp_path / "data", "log.durability=disk", "log.dir.free.bytes.min=0"
    ) as running:
        yield running


class Acknowledged:
    """What the broker has acknowledged: by partition, the numbers of records and their offsets."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self.offsets: dict[int, dict[int, int]] = {part: {} for part in range(PARTITIONS)}
        self.errors: list[str] = []

    def add(self, partition: int, number: int, offset: int) -> None:
        with self._condition:
            self.offsets[partition][number] = offset
            self._condition.notify_all()

    def fail(self, error: object) -> None:
        with self._condition:
            self.errors.append(str(error))
            self._condition.notify_all()

    def count(self) -> int:
        return sum(map(len, self.offsets.values()))

    def await_count(self, count: int) -> None:
        with self._condition:
            assert self._condition.wait_for(
                lambda: self.count() >= count or bool(self.errors), TIMEOUT_S
            ), self.count()


def produce_with_confluent(address: str, count: int, acknowledged: Acknowledged) -> None:
    producer = Producer(
        {
            "bootstrap.servers": address,
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 10,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "retry.backoff.ms": 20,
            "delivery.timeout.ms": int(TIMEOUT_S * 1000),
        }
    )
    for number in range(count):

        def report(error: KafkaError | None, message: Message, number: int = number) -> None:
            if error is not None:
                acknowledged.fail(error)
            else:
                acknowledged.add(message.partition() or 0, number, message.offset() or 0)

        while len(producer) > 200:
            producer.poll(0.01)
        producer.produce("t", b"%d" % number, partition=number % PARTITIONS, on_delivery=report)
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0


def produce_with_kafka_python(address: str, count: int, acknowledged: Acknowledged) -> None:
    producer = KafkaProducer(
        bootstrap_servers=address,
        enable_idempotence=True,
        batch_size=200,
        reconnect_backoff_ms=20,
        reconnect_backoff_max_ms=200,
        retry_backoff_ms=20,
        request_timeout_ms=20_000,
        delivery_timeout_ms=TIMEOUT_S * 1000,
        max_block_ms=TIMEOUT_S * 1000,
    )
    try:
        futures = []
        for number in range(count):
            partition = number % PARTITIONS
            future = producer.send("t", b"%d" % number, partition=partition)
            future.add_callback(
                lambda placed, number=number: acknowledged.add(
                    placed.partition, number, placed.offset
                )
            )
            future.add_errback(acknowledged.fail)
            futures.append(future)
            if number >= 200:
                futures[number - 200].get(timeout=TIMEOUT_S)
        for future in futures:
            future.get(timeout=TIMEOUT_S)
    finally:
        producer.close(timeout=TIMEOUT_S)


CLIENTS: dict[str, Callable[[str, int, Acknowledged], None]] = {
    "confluent-kafka": produce_with_confluent,
    "kafka-python": produce_with_kafka_python,
}
every_client = pytest.mark.parametrize("produce", CLIENTS.values(), ids=CLIENTS)


def in_thread(produce: Any, *arguments: Any) -> tuple[threading.Thread, list[BaseException]]:
    raised: list[BaseException] = []

    def run() -> None:
        try:
            produce(*arguments)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=run, name="producer")
    thread.start()
    return thread, raised


def stored(directory: Path) -> dict[int, list[int]]:
    with cordwood.open(directory) as store:
        return {
            log.partition: [int(record.value or b"") for record in log.read(log.start_offset)]
            for log in store.topic("t").partitions
        }


def check_stored(directory: Path, acknowledged: Acknowledged, count: int) -> None:
    """Every record exactly once and in order, where its acknowledgement said."""
    found = stored(directory)
    assert found == {part: list(range(part, count, PARTITIONS)) for part in range(PARTITIONS)}
    for part, offsets in acknowledged.offsets.items():
        assert {found[part][offset]: offset for offset in offsets.values()} == offsets


@pytest.mark.parametrize(
    ("count", "kills"), [(1500, 2), pytest.param(15_000, 12, marks=pytest.mark.slow)]
)
@every_client
def test_with_idempotence_every_record_is_there_once_however_often_the_broker_is_killed(
    served: ServedProcess, produce: Any, count: int, kills: int
) -> None:
    acknowledged = Acknowledged()
    thread, raised = in_thread(produce, served.address, count, acknowledged)

    for number in range(1, kills + 1):
        acknowledged.await_count(number * count // (kills + 1))
        served.kill()
        served.start()
    thread.join(TIMEOUT_S)
    assert served.stop() == 0

    assert raised == []
    assert acknowledged.errors == []
    assert acknowledged.count() == count
    check_stored(served.directory, acknowledged, count)


@every_client
def test_a_broker_that_is_told_to_stop_under_load_loses_nothing_it_acknowledged(
    served: ServedProcess, produce: Any
) -> None:
    count = 3000
    acknowledged = Acknowledged()
    thread, raised = in_thread(produce, served.address, count, acknowledged)
    acknowledged.await_count(count // 4)

    code = served.stop()
    marker = served.directory / ".kafka_cleanshutdown"
    was_clean = marker.exists()
    before = {part: dict(offsets) for part, offsets in acknowledged.offsets.items()}
    kept = stored(served.directory)
    served.start()
    thread.join(TIMEOUT_S)
    assert served.stop() == 0

    assert code == 0
    assert was_clean
    assert served.started["recovered_partitions"] == 0
    for part, offsets in before.items():
        assert {number: kept[part].index(number) for number in offsets} == offsets
    assert (raised, acknowledged.errors) == ([], [])
    check_stored(served.directory, acknowledged, count)


def test_a_directory_that_is_served_can_be_read_from_another_process(
    served: ServedProcess,
) -> None:
    acknowledged = Acknowledged()
    produce_with_confluent(served.address, 300, acknowledged)

    with cordwood.open(served.directory, read_only=True) as store:
        logs = store.topic("t").partitions
        first = [[int(record.value or b"") for record in log.read(0)] for log in logs]
        produce_with_confluent(served.address, 300, acknowledged)
        more = [len(list(log.read(0))) for log in logs]

    assert first == [list(range(part, 300, PARTITIONS)) for part in range(PARTITIONS)]
    assert more == [200] * PARTITIONS


def test_a_served_directory_is_not_opened_by_another_writer(served: ServedProcess) -> None:
    with pytest.raises(DirectoryLockedError):
        cordwood.open(served.directory)
