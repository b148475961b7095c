"""Several processes of one node: one store, one answer to every client, whoever is killed."""

import os
import resource
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewPartitions,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

import cordwood
from cordwood.broker.config.broker_config import BrokerConfig
from cordwood.broker.config.security_config import SecurityConfig
from cordwood.broker.config.store_config import StoreConfig
from cordwood.broker.observing.log_output import LogOutputConfig
from cordwood.broker.processes import supervisor, worker_process
from cordwood.broker.processes.process_task import NodeConfig
from cordwood.broker.processes.supervisor import Supervisor
from cordwood.errors import DirectoryLockedError
from cordwood.log.rules.topic_config import TopicConfig
from wire.served_process import ServedProcess
from wire.waiting import await_true

PARTITIONS = 4
TIMEOUT_S = 60.0
SETTINGS = ("log.dir.free.bytes.min=0", "group.initial.rebalance.delay.ms=0")


class ServedProcesses(ServedProcess):
    """A broker of several processes over one directory."""

    def __init__(self, directory: Path, count: int | None, *settings: str) -> None:
        super().__init__(directory, *SETTINGS, *settings, keeps_port=False)
        self.count = count

    @property
    def count(self) -> int | None:
        return int(self.arguments[1]) if self.arguments else None

    @count.setter
    def count(self, count: int | None) -> None:
        self.arguments = () if count is None else ("--processes", str(count))

    @property
    def addresses(self) -> list[str]:
        return list(self.started.get("addresses", [self.address]))

    @property
    def pids(self) -> list[int]:
        """The processes that the broker began with."""
        return list(self.started["processes"])


@pytest.fixture
def served(tmp_path: Path) -> Iterator[ServedProcesses]:
    with ServedProcesses(tmp_path / "data", 2) as running:
        yield running


def create(address: str, topic: str, partitions: int = PARTITIONS) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(topic, partitions)])[topic].result(TIMEOUT_S)


def leaders(address: str, topic: str) -> dict[int, int] | None:
    """The leaders by partition; None while one of them is missing."""
    found = AdminClient({"bootstrap.servers": address}).list_topics(topic, TIMEOUT_S).topics[topic]
    if found.error is not None or any(part.leader < 0 for part in found.partitions.values()):
        return None
    return {number: part.leader for number, part in found.partitions.items()}


def produce(address: str, topic: str, numbers: Iterable[int], **settings: Any) -> set[int]:
    """Produce numbers, by turns to all partitions; return those that were acknowledged."""
    acknowledged: set[int] = set()
    producer = Producer({"bootstrap.servers": address, "linger.ms": 2, **settings})

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            acknowledged.add(int(value))

    for number in numbers:
        producer.produce(
            topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=delivered
        )
        producer.poll(0)
    assert producer.flush(TIMEOUT_S) == 0
    return acknowledged


def read(address: str, topic: str, partitions: int = PARTITIONS) -> list[int]:
    """Everything in a topic, with confluent-kafka."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": "none"})
    try:
        places = [TopicPartition(topic, number, 0) for number in range(partitions)]
        left = {
            place.partition: consumer.get_watermark_offsets(place, TIMEOUT_S)[1] for place in places
        }
        consumer.assign(places)
        found: list[int] = []
        expected = sum(left.values())
        while len(found) < expected:
            message = consumer.poll(TIMEOUT_S)
            assert message is not None, len(found)
            assert message.error() is None, message.error()
            found.append(int(message.value() or b""))
        return found
    finally:
        consumer.close()


# --- one node -----------------------------------------------------------------------------------


def test_a_topic_created_through_one_process_is_the_same_on_all(served: ServedProcesses) -> None:
    first, second = served.addresses

    create(second, "t")

    await_true(lambda: leaders(first, "t") == leaders(second, "t") != None)  # noqa: E711
    found = leaders(first, "t")
    assert found is not None
    assert set(found.values()) == {1, 2}


@pytest.mark.parametrize("number", [0, 1])
def test_clients_reach_all_partitions_through_any_address(
    served: ServedProcesses, number: int
) -> None:
    address = served.addresses[number]
    create(address, "t")

    acknowledged = produce(address, "t", range(400), **{"enable.idempotence": True})
    python = KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest")
    python.assign([PythonPartition("t", part) for part in range(PARTITIONS)])
    found: set[int] = set()
    while len(found) < 400:
        for records in python.poll(timeout_ms=10_000).values():
            found.update(int(record.value) for record in records)
    python.close()

    assert acknowledged == found == set(range(400))
    assert sorted(read(served.addresses[1 - number], "t")) == list(range(400))


def test_topics_can_grow_and_be_configured_deleted_and_created_again(
    served: ServedProcesses,
) -> None:
    first, second = served.addresses
    create(first, "t", partitions=2)
    admin = AdminClient({"bootstrap.servers": second})

    admin.create_partitions([NewPartitions("t", PARTITIONS)])["t"].result(TIMEOUT_S)
    await_true(lambda: len(leaders(first, "t") or ()) == PARTITIONS)
    produce(first, "t", range(100))
    for turn in range(5):
        admin.delete_topics(["t"])["t"].result(TIMEOUT_S)
        create(second, "t")
        await_true(lambda: leaders(first, "t") is not None)
        assert produce(first, "t", range(turn, 40)) == set(range(turn, 40))

    assert sorted(read(second, "t")) == list(range(4, 40))


def test_kafka_python_produces_through_the_second_process(served: ServedProcesses) -> None:
    create(served.address, "t")
    producer = KafkaProducer(bootstrap_servers=served.addresses[1], acks="all")

    sent = [producer.send("t", b"%d" % n, partition=n % PARTITIONS) for n in range(100)]
    producer.flush(TIMEOUT_S)
    producer.close()

    assert all(each.succeeded() for each in sent)
    assert sorted(read(served.address, "t")) == list(range(100))


def test_users_rules_and_quotas_are_the_same_on_all_and_survive(tmp_path: Path) -> None:
    settings = (
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:ANONYMOUS",
    )
    rule = AclBinding(
        ResourceType.TOPIC,
        "t",
        ResourcePatternType.LITERAL,
        "User:alice",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    user = UserScramCredentialUpsertion(
        "alice", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret of alice"
    )
    with ServedProcesses(tmp_path / "data", 2, *settings) as served:
        admin = AdminClient({"bootstrap.servers": served.addresses[1]})

        for done in admin.create_acls([rule]).values():
            done.result(TIMEOUT_S)
        for changed in admin.alter_user_scram_credentials([user]).values():
            changed.result(TIMEOUT_S)

        for address in served.addresses:
            _await_security(address, rule)
        assert served.stop() == 0
        served.count = None
        served.start()
        assert _rules(served.address) == [rule]
        assert _users(served.address) == ["alice"]


def _await_security(address: str, rule: AclBinding) -> None:
    await_true(lambda: _rules(address) == [rule] and _users(address) == ["alice"])


def _rules(address: str) -> list[AclBinding]:
    anything: Any = None
    every = AclBindingFilter(
        ResourceType.ANY,
        anything,
        ResourcePatternType.ANY,
        anything,
        anything,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = AdminClient({"bootstrap.servers": address})
    return list(admin.describe_acls(every).result(TIMEOUT_S))


def _users(address: str) -> list[str]:
    admin = AdminClient({"bootstrap.servers": address})
    found: Any = admin.describe_user_scram_credentials()
    return sorted(found.result(TIMEOUT_S))


def test_transactions_over_partitions_of_all_processes_are_seen_whole_or_not_at_all(
    served: ServedProcesses,
) -> None:
    create(served.address, "t")
    producer = transactional(served)
    producer.init_transactions(TIMEOUT_S)

    for number, is_committed in enumerate([True, False, True]):
        if number == 2:  # the processes of coordinator and partitions are new now
            for pid in _workers(served):
                os.kill(pid, signal.SIGKILL)
                _await_another(served, pid)
        producer.begin_transaction()
        for partition in range(PARTITIONS):
            producer.produce("t", b"%d" % number, partition=partition)
        producer.flush(TIMEOUT_S)
        if is_committed:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)

    consumer = Consumer(
        {
            "bootstrap.servers": ",".join(served.addresses),
            "group.id": "reader",
            "isolation.level": "read_committed",
        }
    )
    consumer.assign([TopicPartition("t", number, 0) for number in range(PARTITIONS)])
    assert sorted(_consume(consumer, 2 * PARTITIONS)) == [0] * PARTITIONS + [2] * PARTITIONS
    consumer.close()


def transactional(served: ServedProcesses) -> Producer:
    return Producer({"bootstrap.servers": ",".join(served.addresses), "transactional.id": "copier"})


# --- one directory ------------------------------------------------------------------------------


def test_the_directory_is_one_store_for_a_reader_and_locked_for_a_writer(
    served: ServedProcesses,
) -> None:
    create(served.address, "t")
    produce(served.address, "t", range(200))

    with cordwood.open(served.directory, read_only=True) as store:
        values = {int(r.value or b"") for log in store["t"].partitions for r in log.read(0)}

    assert values == set(range(200))
    with pytest.raises(DirectoryLockedError):
        cordwood.open(served.directory)


def test_another_number_of_processes_keeps_records_offsets_and_settings(
    served: ServedProcesses,
) -> None:
    create(served.address, "t")
    written = set(produce(served.address, "t", range(100)))
    commit(served.address, "g", "t", 7)

    for number, count in enumerate([3, None, 1, 2], start=1):
        assert served.stop() == 0
        assert not list(served.directory.glob("*/cordwood-processes*"))
        served.count = count
        served.start()
        assert committed(served.address, "g", "t") == 7
        written |= produce(served.address, "t", range(100 * number, 100 * number + 50))
        assert sorted(read(served.addresses[-1], "t")) == sorted(written)

    assert len(written) == 300


def commit(address: str, group: str, topic: str, offset: int) -> None:
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    places = [TopicPartition(topic, number, offset) for number in range(PARTITIONS)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()


def committed(address: str, group: str, topic: str) -> int:
    """The offset that the group has committed for every partition."""
    consumer = Consumer({"bootstrap.servers": address, "group.id": group})
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    found = {place.offset for place in consumer.committed(places, TIMEOUT_S)}
    consumer.close()
    assert len(found) == 1, found
    return int(found.pop())


# --- deaths -------------------------------------------------------------------------------------


def test_nothing_acknowledged_is_lost_or_doubled_when_processes_are_killed(
    served: ServedProcesses,
) -> None:
    create(served.address, "t")
    sent: list[int] = []
    is_over = threading.Event()
    acknowledged: set[int] = set()

    def numbers() -> Iterator[int]:
        while not is_over.wait(0.0005):
            sent.append(len(sent))
            yield sent[-1]

    def work() -> None:
        settings = {"enable.idempotence": True, "bootstrap.servers": ",".join(served.addresses)}
        acknowledged.update(produce(served.address, "t", numbers(), **settings))

    writer = threading.Thread(target=work)
    writer.start()
    for _ in range(2):
        for pid in _workers(served):
            _await_more(sent, 200)
            os.kill(pid, signal.SIGKILL)
            _await_another(served, pid)
    is_over.set()
    writer.join(TIMEOUT_S)

    assert acknowledged == set(sent)
    await_true(lambda: leaders(served.address, "t") is not None)
    assert sorted(read(served.address, "t")) == sent


def _await_more(sent: list[int], count: int) -> None:
    begun = len(sent)
    await_true(lambda: len(sent) > begun + count)


def _await_another(served: ServedProcesses, gone: int) -> None:
    """Until another process has taken the place of `gone`."""
    await_true(lambda: gone not in _workers(served) and len(_workers(served)) == 2)


def _workers(served: ServedProcesses) -> list[int]:
    """The processes of the workers now."""
    return _children(served.started["pid"])


def _children(pid: int) -> list[int]:
    with open(f"/proc/{pid}/task/{pid}/children") as children:
        direct = [int(text) for text in children.read().split()]
    return sorted(direct)


def test_a_killed_supervisor_takes_its_processes_along_and_nothing_is_lost(
    served: ServedProcesses,
) -> None:
    create(served.address, "t")
    acknowledged: set[int] = set()
    producer = Producer({"bootstrap.servers": served.address, "linger.ms": 0})
    has_some = threading.Event()

    def delivered(error: KafkaError | None, message: Message) -> None:
        value = message.value()
        if error is None and value is not None:
            acknowledged.add(int(value))
            if len(acknowledged) >= 200:
                has_some.set()

    number = 0
    while not has_some.is_set():
        producer.produce("t", b"%d" % number, partition=number % 4, on_delivery=delivered)
        producer.poll(0.001)
        number += 1
    pids = served.pids
    served.kill()
    producer.purge()
    await_true(lambda: not any(map(_is_running, pids)))
    served.start()

    found = read(served.address, "t")
    assert acknowledged <= set(found)
    assert len(found) == len(set(found))


def _is_running(pid: int) -> bool:
    """Whether a process has not ended; its new parent may not have waited for it yet."""
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_a_group_goes_on_after_the_death_of_its_coordinator(served: ServedProcesses) -> None:
    create(served.address, "t")
    produce(served.address, "t", range(100))
    settings = {
        "bootstrap.servers": ",".join(served.addresses),
        "group.id": "g",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    }
    consumer = Consumer(settings)
    consumer.subscribe(["t"])
    found = _consume(consumer, 100)
    consumer.commit(asynchronous=False)

    for pid in _workers(served):
        os.kill(pid, signal.SIGKILL)
    await_true(lambda: leaders(served.address, "t") is not None)
    produce(served.address, "t", range(100, 200))
    found += _consume(consumer, 100)
    consumer.commit(asynchronous=False)
    consumer.close()

    assert sorted(found) == list(range(200))
    again = Consumer(settings)
    places = [TopicPartition("t", number) for number in range(PARTITIONS)]
    assert [place.offset for place in again.committed(places, TIMEOUT_S)] == [50] * PARTITIONS
    again.close()


def _consume(consumer: Consumer, count: int) -> list[int]:
    found: list[int] = []
    while len(found) < count:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None, found
        if message.error() is None:
            found.append(int(message.value() or b""))
    return found


def test_a_process_that_is_asked_to_end_is_started_again(served: ServedProcesses) -> None:
    create(served.address, "t")
    before = _workers(served)

    os.kill(before[1], signal.SIGTERM)
    _await_another(served, before[1])
    await_true(lambda: leaders(served.address, "t") is not None)

    assert produce(served.addresses[1], "t", range(40)) == set(range(40))
    assert served.stop() == 0


def _config(tmp_path: Path) -> NodeConfig:
    broker = BrokerConfig(port=0)
    return NodeConfig(
        broker=broker,
        security=SecurityConfig.assemble(broker),
        store=StoreConfig(log_dirs=(str(tmp_path / "data"),), log_dir_free_bytes_min=0),
        topic_defaults=TopicConfig(),
        log_output=LogOutputConfig(),
    )


def test_a_process_that_hangs_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(supervisor, "BEAT_S", 0.25)
    with Supervisor(_config(tmp_path), 2) as running:
        first, second = (f"{host}:{port}" for host, port in running.addresses)
        create(first, "t")
        before = running.pids()[1]

        os.kill(before, signal.SIGSTOP)
        await_true(lambda: before not in (found := running.pids()) and len(found) == 2)
        await_true(lambda: leaders(first, "t") is not None)

        assert produce(second, "t", range(40)) == set(range(40))
    assert f"process 1 (pid {before}) has not answered" in caplog.text


def test_a_process_that_hangs_before_it_is_ready_is_killed_and_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hanging = [sys.executable, "-c", "import time; time.sleep(600)"]
    commands = [hanging]  # the process that is started first, and none of the others
    real_command = worker_process._command

    def command(fds: Sequence[int]) -> list[str]:
        return commands.pop() if commands else real_command(fds)

    monkeypatch.setattr(worker_process, "_command", command)
    monkeypatch.setattr(supervisor, "BEAT_S", 0.25)

    with Supervisor(_config(tmp_path), 2) as running:
        first, second = (f"{host}:{port}" for host, port in running.addresses)
        create(second, "t")
        await_true(lambda: leaders(first, "t") is not None)

        assert produce(first, "t", range(40)) == set(range(40))
    assert caplog.text.count("is not ready and has made no progress") == 1


def test_a_process_is_started_again_once_the_system_has_descriptors_for_it(
    served: ServedProcesses,
) -> None:
    create(served.address, "t")
    before = _workers(served)
    limits = resource.prlimit(served.pid, resource.RLIMIT_NOFILE)

    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, (3, limits[1]))
    os.kill(before[1], signal.SIGKILL)
    served.await_report("process not started")
    resource.prlimit(served.pid, resource.RLIMIT_NOFILE, limits)
    _await_another(served, before[1])
    await_true(lambda: leaders(served.address, "t") is not None)

    assert produce(served.addresses[1], "t", range(40)) == set(range(40))
    assert served.stop() == 0


def test_processes_with_tls_and_users_let_in_whom_the_keeper_knows(tmp_path: Path) -> None:
    served = ServedProcesses(tmp_path / "data", None)
    served.arguments = ("--processes", "2", "--secure")
    with served:
        folder = tmp_path / "data" / "security"
        admin: dict[str, Any] = {
            "bootstrap.servers": served.addresses[1],
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(folder / "ca.pem"),
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": (folder / "admin.password").read_text().strip(),
        }
        client = AdminClient(admin)
        client.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result(TIMEOUT_S)
        added = UserScramCredentialUpsertion(
            "anna", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret-of-anna"
        )
        client.alter_user_scram_credentials([added])["anna"].result(TIMEOUT_S)
        anna = {**admin, "sasl.username": "anna", "sasl.password": "secret-of-anna"}

        for address in served.addresses:
            assert produce(address, "orders", range(20), **_without_address(admin)) == set(
                range(20)
            )
            refused = produce(address, "orders", range(4), **_without_address(anna), **_BRIEF)
            assert refused == set()
        rule = AclBinding(
            ResourceType.TOPIC,
            "orders",
            ResourcePatternType.LITERAL,
            "User:anna",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        client.create_acls([rule])[rule].result(TIMEOUT_S)
        for address in served.addresses:
            assert produce(address, "orders", range(20), **_without_address(anna)) == set(range(20))


_BRIEF = {"message.timeout.ms": 3_000}


def _without_address(settings: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name != "bootstrap.servers"}
