"""Members of consumer groups, of every client, behind one face.

A test drives its members by turns: `poll_until` polls each a little until a condition holds. A poll
must end soon, whatever the other members do: librdkafka gives its partitions back only while it is
polled, so a poll that waits for the end of a rebalance would wait for itself. The members whose
polls do wait, kafka-python and aiokafka, work by themselves in a thread.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from typing import Any, ClassVar, Protocol, Self, TypeVar

from aiokafka import AIOKafkaConsumer
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AioRange
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor as AioRoundRobin
from aiokafka.coordinator.assignors.sticky.sticky_assignor import (
    StickyPartitionAssignor as AioSticky,
)
from confluent_kafka import Consumer, KafkaException
from kafka import KafkaConsumer
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

TIMEOUT_S = 60.0
SESSION_TIMEOUT_MS = 45_000  # nobody is expelled because the machine is busy
HEARTBEAT_MS = 200
T = TypeVar("T")

Place = tuple[str, int]


class Member(Protocol):
    """One consumer in a group. Auto commit is off: tests say when."""

    received: list[tuple[str, int, int, bytes | None]]  # topic, partition, offset, value

    def poll(self) -> None:
        """Do a little of what has to be done, and add what came to `received`."""
        ...

    def assignment(self) -> set[Place]: ...
    def commit(self) -> None: ...
    def close(self) -> None: ...


class ConfluentMember:
    """librdkafka, in a classic group or, with `protocol="consumer"`, in one of KIP-848."""

    strategies = ("range", "roundrobin", "cooperative-sticky")

    def __init__(
        self,
        address: str,
        group: str,
        topics: Sequence[str],
        *,
        strategy: str = "range",
        instance_id: str | None = None,
        protocol: str = "classic",
        **options: Any,
    ) -> None:
        self.received: list[tuple[str, int, int, bytes | None]] = []
        self.revoked: list[set[Place]] = []
        config: dict[str, Any] = {
            "bootstrap.servers": address,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "group.protocol": protocol,
            "topic.metadata.refresh.interval.ms": 1000,
        }
        if protocol == "classic":
            config |= {
                "partition.assignment.strategy": strategy,
                "session.timeout.ms": SESSION_TIMEOUT_MS,
                "heartbeat.interval.ms": HEARTBEAT_MS,
            }
        if instance_id is not None:
            config["group.instance.id"] = instance_id
        self.consumer = Consumer(config | options)
        self.consumer.subscribe(list(topics), on_revoke=self._on_revoke)

    def _on_revoke(self, _consumer: Consumer, partitions: list[Any]) -> None:
        self.revoked.append({(part.topic, part.partition) for part in partitions})

    def poll(self) -> None:
        for message in self.consumer.consume(1000, timeout=0.05):
            error = message.error()
            if error is not None:
                raise KafkaException(error)
            topic, partition, offset = message.topic(), message.partition(), message.offset()
            assert topic is not None
            assert partition is not None
            assert offset is not None
            self.received.append((topic, partition, offset, message.value()))

    def assignment(self) -> set[Place]:
        return {(part.topic, part.partition) for part in self.consumer.assignment()}

    def commit(self) -> None:
        self.consumer.commit(asynchronous=False)

    def close(self) -> None:
        self.consumer.close()


class PythonMember:
    """kafka-python, in a thread of its own: a poll that ends early gives up on joining."""

    strategies = ("range", "roundrobin", "sticky", "cooperative-sticky")
    _assignors: ClassVar = {
        "range": RangePartitionAssignor,
        "roundrobin": RoundRobinPartitionAssignor,
        "sticky": StickyPartitionAssignor,
        "cooperative-sticky": CooperativeStickyAssignor,
    }

    def __init__(
        self,
        address: str,
        group: str,
        topics: Sequence[str],
        *,
        strategy: str = "range",
        instance_id: str | None = None,
    ) -> None:
        self.received: list[tuple[str, int, int, bytes | None]] = []
        self._wishes: SimpleQueue[tuple[Future[Any], Callable[[], Any]]] = SimpleQueue()
        self._is_closing = False
        self.consumer = KafkaConsumer(
            bootstrap_servers=address,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=[self._assignors[strategy]],
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1000,
        )
        self.consumer.subscribe(list(topics))
        self._thread = threading.Thread(target=self._work, name="kafka-python member")
        self._thread.start()

    def _work(self) -> None:
        coordinator = self.consumer._coordinator
        while not self._is_closing:
            for records in self.consumer.poll(timeout_ms=300).values():
                self.received.extend((r.topic, r.partition, r.offset, r.value) for r in records)
            if coordinator.rejoining:
                # A join that outlasts its poll is forgotten by kafka-python 3.0 if its reason was
                # a change of metadata: the member sends no heartbeats and is expelled.
                coordinator.request_rejoin()
            while not self._wishes.empty():
                done, wish = self._wishes.get()
                try:
                    done.set_result(wish())
                except Exception as error:
                    done.set_exception(error)

    def _ask(self, wish: Callable[[], T]) -> T:
        done: Future[T] = Future()
        self._wishes.put((done, wish))
        return done.result(TIMEOUT_S)

    def poll(self) -> None:
        time.sleep(0.01)  # it works in its own thread

    def assignment(self) -> set[Place]:
        parts = self.consumer.assignment()  # any thread may ask; the next poll may take long
        return {(part.topic, part.partition) for part in parts}

    def commit(self) -> None:
        self._ask(self.consumer.commit)

    def close(self) -> None:
        self._is_closing = True
        self._thread.join(TIMEOUT_S)
        self.consumer.close(autocommit=False)


class AioMember:
    """aiokafka, on an event loop in a thread of its own."""

    strategies = ("range", "roundrobin", "sticky")
    _assignors: ClassVar = {"range": AioRange, "roundrobin": AioRoundRobin, "sticky": AioSticky}

    def __init__(
        self,
        address: str,
        group: str,
        topics: Sequence[str],
        *,
        strategy: str = "range",
        instance_id: str | None = None,
    ) -> None:
        self.received: list[tuple[str, int, int, bytes | None]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka member")
        self._thread.start()
        self._joining = asyncio.run_coroutine_threadsafe(
            self._start(address, group, topics, strategy, instance_id), self._loop
        )
        self._receiving = asyncio.run_coroutine_threadsafe(self._receive(), self._loop)

    async def _start(
        self,
        address: str,
        group: str,
        topics: Sequence[str],
        strategy: str,
        instance_id: str | None,
    ) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            *topics,
            bootstrap_servers=address,
            group_id=group,
            group_instance_id=instance_id,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            partition_assignment_strategy=(self._assignors[strategy],),
            session_timeout_ms=SESSION_TIMEOUT_MS,
            heartbeat_interval_ms=HEARTBEAT_MS,
            metadata_max_age_ms=1000,
        )
        await consumer.start()
        return consumer

    async def _receive(self) -> None:
        consumer = await asyncio.wrap_future(self._joining)
        while True:
            for records in (await consumer.getmany(timeout_ms=50)).values():
                self.received.extend((r.topic, r.partition, r.offset, r.value) for r in records)

    def _run(self, work: Callable[[AIOKafkaConsumer], Coroutine[Any, Any, T]]) -> T:
        consumer = self._joining.result(TIMEOUT_S)
        return asyncio.run_coroutine_threadsafe(work(consumer), self._loop).result(TIMEOUT_S)

    def poll(self) -> None:
        time.sleep(0.01)  # it works in its own thread
        if self._receiving.done():
            self._receiving.result()  # what ended it is the test's failure

    def assignment(self) -> set[Place]:
        if not self._joining.done():
            return set()
        parts = self._joining.result().assignment()
        return {(part.topic, part.partition) for part in parts}

    def commit(self) -> None:
        self._run(lambda consumer: consumer.commit())

    async def _stop(self, consumer: AIOKafkaConsumer) -> None:
        self._receiving.cancel()
        await consumer.stop()

    def close(self) -> None:
        try:
            self._run(self._stop)
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(TIMEOUT_S)
            self._loop.close()


MEMBERS: dict[str, Any] = {
    "confluent-kafka": ConfluentMember,
    "kafka-python": PythonMember,
    "aiokafka": AioMember,
}


class Crew:
    """The members of a test, closed at its end."""

    def __init__(self) -> None:
        self.members: list[Any] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for member in list(self.members):
            self.dismiss(member)

    def add(self, kind: type[T], *arguments: Any, **options: Any) -> T:
        member = kind(*arguments, **options)
        self.members.append(member)
        return member

    def dismiss(self, member: Any) -> None:
        self.members.remove(member)
        member.close()

    def poll_until(self, condition: Callable[[], bool], what: str) -> None:
        """Let everybody work until `condition` holds."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < deadline_s, f"{what}: {self.shares()}"
            for member in self.members:
                member.poll()

    def shares(self) -> list[set[Place]]:
        return [member.assignment() for member in self.members]

    def await_shared(self, places: set[Place], *, sizes: Sequence[int] | None = None) -> None:
        """Until `places` are divided up among all members, in shares of such sizes."""

        def is_divided() -> bool:
            shares = self.shares()
            return (
                sum(map(len, shares)) == len(places)
                and set().union(*shares) == places
                and (sizes is None or sorted(map(len, shares)) == sorted(sizes))
            )

        self.poll_until(is_divided, f"{len(places)} partitions were not shared out")

    def received(self) -> list[tuple[str, int, int, bytes | None]]:
        return [item for member in self.members for item in member.received]
