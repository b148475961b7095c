"""What a committed reader of a topic sees, with a client that survives restarts of the broker."""

from __future__ import annotations

import time
from collections.abc import Callable

from confluent_kafka import OFFSET_BEGINNING, Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from interop.java_programs import RunningProgram

TIMEOUT_S = 90.0  # long: the machine may have other work


def create_topic(servers: str, name: str, *, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    admin.create_topics([NewTopic(name, num_partitions=partitions)])[name].result(TIMEOUT_S)


class CommittedTopic:
    """All committed records of a topic from its beginning, in the order of each partition."""

    def __init__(self, servers: str, topic: str, *, partitions: int = 1) -> None:
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "judge",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "log_level": 0,
            }
        )
        self._consumer.assign(
            [TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)]
        )
        self.messages: list[Message] = []

    def __enter__(self) -> CommittedTopic:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def take(self, timeout_s: float = 0.05) -> None:
        """Read what is there."""
        self.messages += (
            message
            for message in self._consumer.consume(1000, timeout=timeout_s)
            if message.error() is None
        )

    def wait_until(
        self, is_enough: Callable[[list[Message]], bool], *, during: RunningProgram | None = None
    ) -> None:
        """Read until there is enough, while a program runs that must not end."""
        deadline_s = time.monotonic() + TIMEOUT_S
        while not is_enough(self.messages):
            if during is not None and not during.is_running:
                raise AssertionError(f"the program ended\n{during.printed()}")
            if time.monotonic() > deadline_s:
                said = "" if during is None else during.printed()[-8000:]
                raise TimeoutError(f"{len(self.messages)} records in {TIMEOUT_S} s\n{said}")
            self.take()

    def wait_for(self, count: int, *, during: RunningProgram | None = None) -> None:
        self.wait_until(lambda messages: len(messages) >= count, during=during)
