"""A member of a consumer group: an ordinary Kafka consumer in its own thread."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Final

from demo.recording import Recording

if TYPE_CHECKING:
    from confluent_kafka import Consumer, TopicPartition

_BATCH: Final = 500
_POLL_S: Final = 0.1
_COMMIT_TIMEOUT_S: Final = 30.0


class SeenOffsets:
    """The offsets of each partition that any member has read. Any thread may use it."""

    def __init__(self) -> None:
        self._flags: dict[int, bytearray] = {}
        self._lock = threading.Lock()
        self.count = 0
        self.repeated = 0

    def add(self, partition: int, offset: int) -> None:
        with self._lock:
            flags = self._flags.setdefault(partition, bytearray())
            if offset >= len(flags):
                flags.extend(bytes(offset + 1 - len(flags)))
            is_new = not flags[offset]
            flags[offset] = 1
            self.count += is_new
            self.repeated += not is_new

    def end(self, partition: int) -> int:
        """The offset after the last one read."""
        with self._lock:
            return len(self._flags.get(partition, b""))

    def missing_below(self, partition: int, end: int) -> int:
        with self._lock:
            return end - self._flags.get(partition, bytearray())[:end].count(1)


class GroupMember:
    """Reads its assigned partitions until it is stopped; commits before it gives one up.

    assigned   its current partitions
    failure    why it ended early
    """

    def __init__(
        self, name: str, address: str, topic: str, group: str, seen: SeenOffsets, record: Recording
    ) -> None:
        from confluent_kafka import Consumer

        self.name = name
        self.assigned: tuple[int, ...] = ()
        self.records = 0
        self.failure: str | None = None
        self._topic = topic
        self._seen = seen
        self._recording = record
        self._next: dict[int, int] = {}
        self._stop = threading.Event()
        self._has_committed = threading.Event()
        self._may_leave = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"member {name}", daemon=True)
        self._consumer: Consumer = Consumer(
            {
                "bootstrap.servers": address,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": 200,  # so that members notice each other quickly
                "session.timeout.ms": 30_000,  # a machine may stand still for long; members leave
                "fetch.wait.max.ms": 100,
                "log_level": 0,
            }
        )

    def start(self) -> None:
        self._thread.start()

    def finish(self) -> None:
        """Stop reading, and commit. It stays a member, so that no partition moves yet."""
        self._stop.set()
        if self._thread.is_alive():
            self._has_committed.wait(_COMMIT_TIMEOUT_S)

    def close(self) -> None:
        """Leave the group and end the thread. Safe to repeat."""
        self._stop.set()
        self._may_leave.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        from confluent_kafka import KafkaException

        try:
            self._consumer.subscribe(
                [self._topic], on_assign=self._on_assign, on_revoke=self._on_revoke
            )
            while not self._stop.is_set():
                for message in self._consumer.consume(_BATCH, _POLL_S):
                    partition, offset = message.partition(), message.offset()
                    if message.error() is None and partition is not None and offset is not None:
                        self.records += 1
                        self._next[partition] = offset + 1
                        self._seen.add(partition, offset)
                self._recording.consumed = self._seen.count
            self._commit(self.assigned)
        except KafkaException as error:
            self.failure = str(error)
        finally:
            self._has_committed.set()
            self._may_leave.wait()
            self._consumer.close()

    def _on_assign(self, _: Consumer, places: list[TopicPartition]) -> None:
        self._next.clear()
        self.assigned = tuple(sorted(place.partition for place in places))

    def _on_revoke(self, _: Consumer, places: list[TopicPartition]) -> None:
        from confluent_kafka import KafkaException

        self.assigned = ()
        if not self._stop.is_set():
            # If this fails, the next owner reads some records again, which is harmless.
            with contextlib.suppress(KafkaException):
                self._commit(tuple(place.partition for place in places))

    def _commit(self, partitions: tuple[int, ...]) -> None:
        from confluent_kafka import TopicPartition

        places = [
            TopicPartition(self._topic, partition, self._next[partition])
            for partition in partitions
            if partition in self._next
        ]
        if places:
            self._consumer.commit(offsets=places, asynchronous=False)
