"""The clients of a run: producers, readers, a group that commits. A process in a namespace.

    python -m crash.cluster_processes.clients PLAN

creates the topic, says so, and begins. Then it takes one word per line and answers with a line:

    count     how many values were acknowledged
    lagging   how many partitions have no leader or too few replicas in sync; -1 if unknown
    elect     ask for preferred leaders; the answer says only that it was asked
    finish    stop producing, wait for all answers, read everything, write what was seen; end

Each value is unique, and each producer writes to each partition in order. An idempotent producer
that ends with a fatal error is replaced by another life of it.
"""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Final

from confluent_kafka import (
    OFFSET_INVALID,
    Consumer,
    ElectionType,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, NewTopic

from crash.cluster_processes.ledger import Ledger
from crash.cluster_processes.verdict import CommitRead, Stored
from crash.cluster_processes.virtual_switch import die_with_parent, enter_namespace

TOPIC: Final = "ledger"
GROUP: Final = "committing"
REPLICAS: Final = 3
ANSWERS_S: Final = 180.0
_REREAD_S: Final = 6.0
_UNANSWERED_MAX: Final = 2_000
_NETWORK: Final = {
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 4_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 1_000,
    "topic.metadata.refresh.interval.ms": 3_000,
    "topic.metadata.refresh.fast.interval.ms": 100,
    "log_level": 0,
}
_TOLD: Final = {"log_level": 7, "debug": "eos"}  # what idempotent producers do, in the log


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientPlan:
    """What the process is told."""

    bootstrap: str
    namespace: str
    seed: int
    partitions: int
    producers: int
    per_second: float  # values of each producer
    result_file: str

    def encode(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def decode(cls, text: str) -> ClientPlan:
        return cls(**json.loads(text))


class Clients:
    """The threads of the process."""

    def __init__(self, plan: ClientPlan) -> None:
        self._plan = plan
        self._ledger = Ledger()
        self._is_producing = threading.Event()
        self._is_reading = threading.Event()
        self._is_producing.set()
        self._is_reading.set()
        self._producers = [self._thread(self._produce, n) for n in range(plan.producers)]
        self._readers = [
            self._thread(self._follow, 0),
            self._thread(self._read_again, 0),
            self._thread(self._commit, 0),
        ]

    def _thread(self, run: Callable[[int], None], number: int) -> threading.Thread:
        thread = threading.Thread(target=run, args=(number,), daemon=True)
        thread.start()
        return thread

    def run(self) -> None:
        for line in sys.stdin:
            command = line.strip()
            if command == "count":
                print(len(self._ledger.seen.acknowledged), flush=True)
            elif command == "lagging":
                print(self._lagging(), flush=True)
            elif command == "elect":
                self._thread(self._elect, 0)
                print("asked", flush=True)
            elif command == "finish":
                self._finish()
                print("finished", flush=True)
                return

    # --- producing -----------------------------------------------------------------------------

    def _produce(self, number: int) -> None:
        rng = Random(f"{self._plan.seed} producer {number}")
        life = 0
        while self._is_producing.is_set():
            self._produce_in_one_life(f"{number}.{life}", rng)
            life += 1

    def _produce_in_one_life(self, life: str, rng: Random) -> None:
        """Until the run ends or the producer can do no more."""
        fatal = threading.Event()
        ledger = self._ledger

        def answered(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                ledger.answered(None, error.name())
                if error.fatal() or error.code() in (KafkaError._FATAL, KafkaError._PURGE_QUEUE):
                    fatal.set()
                return
            value = message.value()
            assert value is not None
            offset = message.offset()
            ledger.answered(
                Stored(message.partition() or 0, -1 if offset is None else offset, value.decode())
            )

        def failed(error: KafkaError) -> None:
            if error.fatal():
                fatal.set()

        producer = Producer(
            {
                **_NETWORK,
                **_TOLD,
                "bootstrap.servers": self._plan.bootstrap,
                "client.id": f"producer-{life}",
                "enable.idempotence": True,
                "acks": "all",
                "linger.ms": 5,
                "batch.num.messages": 20,
                "request.timeout.ms": 6_000,
                "message.timeout.ms": int(ANSWERS_S * 2_000),
                "retry.backoff.ms": 50,
                "error_cb": failed,
            }
        )
        count = 0
        while self._is_producing.is_set() and not fatal.is_set():
            if len(producer) < _UNANSWERED_MAX:
                partition = rng.randrange(self._plan.partitions)
                value = f"{life}/{count}"
                count += 1
                ledger.sending(life, partition, value)
                try:
                    producer.produce(TOPIC, value, partition=partition, on_delivery=answered)
                except KafkaException as error:  # the library knows that it cannot be sent
                    ledger.answered(None, f"refused: {error.args[0].name()}")
                    fatal.set()
            try:
                producer.poll(rng.expovariate(self._plan.per_second))
            except KafkaException as error:  # a fatal one, which the verdict wants to know of
                ledger.fatal(f"{life}: {error.args[0].name()}: {error.args[0].str()}")
                fatal.set()
        if fatal.is_set():
            producer.purge()
        with contextlib.suppress(KafkaException):  # a fatal error is told once more
            producer.flush(ANSWERS_S)
        with contextlib.suppress(KafkaException):
            producer.flush(ANSWERS_S)

    # --- reading -------------------------------------------------------------------------------

    def _consumer(self, group: str) -> Consumer:
        return Consumer(
            {
                **_NETWORK,
                "bootstrap.servers": self._plan.bootstrap,
                "group.id": group,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 100,
                "isolation.level": "read_uncommitted",
                "check.crcs": True,
            }
        )

    def _take(self, consumer: Consumer, who: str) -> bool:
        """Read one message; False if the position of the consumer is lost."""
        message = consumer.poll(0.2)
        if message is None:
            return True
        error = message.error()
        if error is None:
            value, partition, offset = message.value(), message.partition(), message.offset()
            assert value is not None
            assert partition is not None
            assert offset is not None
            self._ledger.read(Stored(partition, offset, value.decode()))
            return True
        if error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
            self._ledger.reset(f"{who}: {message.partition()}/{message.offset()}: {error.str()}")
            return False
        return True

    def _from(self, offsets: list[int]) -> list[TopicPartition]:
        return [TopicPartition(TOPIC, number, offset) for number, offset in enumerate(offsets)]

    def _follow(self, _number: int) -> None:
        """Read everything in order, from the beginning on."""
        consumer = self._consumer("following")
        consumer.assign(self._from([0] * self._plan.partitions))
        while self._is_reading.is_set():
            if not self._take(consumer, "the follower"):
                consumer.assign(consumer.position(consumer.assignment()))
        consumer.close()

    def _read_again(self, _number: int) -> None:
        """Read from other places again and again, each time with new connections."""
        rng = Random(f"{self._plan.seed} reader")
        while self._is_reading.is_set():
            ends = [0] * self._plan.partitions
            for each in list(self._ledger.seen.acknowledged[-200:]):
                ends[each.partition] = max(ends[each.partition], each.offset)
            consumer = self._consumer("again")
            consumer.assign(self._from([rng.randint(0, end) for end in ends]))
            until_s = time.monotonic() + _REREAD_S
            while self._is_reading.is_set() and time.monotonic() < until_s:
                if not self._take(consumer, "the reader"):
                    break
            consumer.close()

    # --- a group -------------------------------------------------------------------------------

    def _commit(self, _number: int) -> None:
        """Commit ever greater offsets, and look now and then what was committed."""
        rng = Random(f"{self._plan.seed} commits")
        consumer = self._consumer(GROUP)
        place = TopicPartition(TOPIC, 0)
        unknown: set[int] = set()
        attempted = acknowledged = OFFSET_INVALID  # nothing was committed yet
        while self._is_reading.is_set():
            try:
                if rng.random() < 0.7:
                    attempted = max(attempted, 0) + 1
                    unknown.add(attempted)
                    wanted = TopicPartition(TOPIC, 0, attempted)
                    done = consumer.commit(offsets=[wanted], asynchronous=False)
                    if all(each.error is None for each in done):
                        unknown.discard(attempted)
                        acknowledged = attempted
                else:
                    self._look(
                        consumer, place, CommitRead(acknowledged, 0, attempted, False), unknown
                    )
            except KafkaException:
                pass  # it may be committed or not
            time.sleep(0.1)
        last = CommitRead(acknowledged, 0, attempted, False)
        until_s = time.monotonic() + ANSWERS_S
        while time.monotonic() < until_s:
            with contextlib.suppress(KafkaException):
                if self._look(consumer, place, last, unknown):
                    break
        else:
            self._ledger.commit_read(last)  # a group that does not answer has lost everything
        consumer.close()

    def _look(
        self, consumer: Consumer, place: TopicPartition, known: CommitRead, unknown: set[int]
    ) -> bool:
        [found] = consumer.committed([place], timeout=8)
        if found.error is None:
            offset = found.offset
            read = known._replace(found=offset, is_unknown=offset in unknown)
            self._ledger.commit_read(read)
        return found.error is None

    # --- commands ------------------------------------------------------------------------------

    def _elect(self, _number: int) -> None:
        admin = AdminClient({**_NETWORK, "bootstrap.servers": self._plan.bootstrap})
        partitions = self._from([0] * self._plan.partitions)
        with contextlib.suppress(KafkaException):
            admin.elect_leaders(ElectionType.PREFERRED, partitions).result(20)

    def _lagging(self) -> int:
        admin = AdminClient({**_NETWORK, "bootstrap.servers": self._plan.bootstrap})
        try:
            topics = admin.list_topics(timeout=5).topics.values()
        except KafkaException:
            return -1
        return sum(
            partition.leader < 0 or len(partition.isrs) < len(partition.replicas)
            for topic in topics
            for partition in topic.partitions.values()
        )

    def _finish(self) -> None:
        self._is_producing.clear()
        for thread in self._producers:
            thread.join()
        final = self._read_all()
        self._is_reading.clear()
        for thread in self._readers:
            thread.join()
        self._ledger.seen.final = final
        self._ledger.write(Path(self._plan.result_file))

    def _read_all(self) -> dict[int, list[tuple[int, str]]]:
        found: dict[int, list[tuple[int, str]]] = {}
        for partition in range(self._plan.partitions):
            consumer = self._consumer("final")
            place = TopicPartition(TOPIC, partition, 0)
            end = self._end_of(consumer, place)
            consumer.assign([place])
            records = found.setdefault(partition, [])
            until_s = time.monotonic() + ANSWERS_S
            while time.monotonic() < until_s and (not records or records[-1][0] < end - 1):
                if not end:
                    break
                for message in consumer.consume(500, timeout=1):
                    value, offset = message.value(), message.offset()
                    if message.error() is None and value is not None and offset is not None:
                        records.append((offset, value.decode()))
            consumer.close()
        return found

    def _end_of(self, consumer: Consumer, place: TopicPartition) -> int:
        until_s = time.monotonic() + ANSWERS_S
        while True:
            try:
                return consumer.get_watermark_offsets(place, timeout=5)[1]
            except KafkaException:
                if time.monotonic() > until_s:
                    raise


def create_topic(plan: ClientPlan) -> None:
    """Once all brokers have joined."""
    admin = AdminClient({**_NETWORK, "bootstrap.servers": plan.bootstrap})
    topic = NewTopic(
        TOPIC,
        num_partitions=plan.partitions,
        replication_factor=REPLICAS,
        config={
            "min.insync.replicas": "2",
            # A broker whose clock is wrong takes records, too.
            "message.timestamp.after.max.ms": str(2**63 - 1),
        },
    )
    until_s = time.monotonic() + ANSWERS_S
    while True:
        try:
            admin.create_topics([topic], request_timeout=10)[TOPIC].result(20)
            return
        except KafkaException as error:
            if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS:
                return
            if time.monotonic() > until_s:
                raise
            time.sleep(0.2)


def main() -> None:
    die_with_parent()
    plan = ClientPlan.decode(sys.argv[1])
    enter_namespace(plan.namespace)
    create_topic(plan)
    clients = Clients(plan)
    print("ready", flush=True)
    clients.run()


if __name__ == "__main__":
    main()
