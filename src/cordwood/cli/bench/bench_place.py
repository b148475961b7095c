"""Where `cordwood bench` measures: a topic of its own, created first and removed afterwards."""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

from cordwood.cli.at.target import BrokerTarget
from cordwood.clock import SystemClock
from cordwood.format.batch import RecordRun
from cordwood.format.file_names import META_PROPERTIES
from cordwood.library import open_writer
from cordwood.log.reading.record_walk import read_runs
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.remote.remote_cluster import RemoteCluster
from cordwood.remote.remote_consumer import EARLIEST, LATEST, RemoteConsumer
from cordwood.remote.remote_producer import RemoteProducer
from cordwood.remote.remote_topics import RemoteTopics

_PREFIX: Final = "cordwood-bench-"
_TOPIC: Final = "bench"
_PASSED_OVER: Final = "remote-log-index-cache"  # neither Kafka nor Cordwood looks for logs in it

Append = Callable[[list[Any]], object]


class BenchPlace(Protocol):
    """A topic to measure on."""

    durability: str

    def appender(self) -> Append:
        """For one thread: appends (key, value) pairs, and returns once they are acknowledged."""
        ...

    def runs(self) -> Iterator[RecordRun]:
        """All records, each run valid until the next is asked for."""
        ...


@contextlib.contextmanager
def directory_place(
    directory: str, *, partitions: int, config: Mapping[str, str]
) -> Iterator[BenchPlace]:
    """A topic of a store of its own below `directory`. Removed again, whatever happens."""
    path, made = _temporary_directory(directory)
    try:
        store = open_writer([path], defaults=TopicConfig(), has_housekeeping=False)
        with store:
            yield _DirectoryPlace(store.create_topic(_TOPIC, partitions=partitions, config=config))
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if made is not None:
            with contextlib.suppress(OSError):
                os.rmdir(made)


def _temporary_directory(directory: str) -> tuple[str, str | None]:
    """Ours, and the directory around it where that was made for it.

    In a data directory it lies where those who own that do not look: what a power cut leaves of
    it disturbs nobody.
    """
    if not os.path.exists(os.path.join(directory, META_PROPERTIES)):
        return tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=directory), None
    around = os.path.join(directory, _PASSED_OVER)
    is_new = not os.path.isdir(around)
    os.makedirs(around, exist_ok=True)
    return tempfile.mkdtemp(prefix=_PREFIX, dir=around), around if is_new else None


class _DirectoryPlace:
    def __init__(self, topic: Any) -> None:
        self._topic = topic
        self.durability = str(topic.config.durability)

    def appender(self) -> Append:
        topic = self._topic

        def append(records: list[Any]) -> object:
            if len(records) == 1:
                return topic.append(records[0][1])
            return topic.append_many(records)

        return append

    def runs(self) -> Iterator[RecordRun]:
        for log in self._topic.partitions:
            yield from read_runs(log.source, log.start_offset, log.high_watermark)


@contextlib.contextmanager
def broker_place(
    target: BrokerTarget, *, partitions: int, config: Mapping[str, str]
) -> Iterator[BenchPlace]:
    """A topic of a broker. Deleted again, whatever happens."""
    name = f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(RemoteCluster(target.addresses))
        topics = RemoteTopics(cluster)
        topics.create(name, partitions=partitions, config=config)
        stack.callback(_delete, target, name)
        known = topics.configs([name])[name].get("durability")
        durability = "as the broker has it" if known is None else known.value
        yield _BrokerPlace(target.addresses, name, durability, stack)


def _delete(target: BrokerTarget, name: str) -> None:
    """By a connection of its own: the others may have been broken off in the middle."""
    with RemoteCluster(target.addresses) as cluster:
        RemoteTopics(cluster).delete(name)


class _BrokerPlace:
    def __init__(
        self,
        addresses: Sequence[tuple[str, int]],
        topic: str,
        durability: str,
        stack: contextlib.ExitStack,
    ) -> None:
        self._addresses = addresses
        self._topic = topic
        self._stack = stack
        self.durability = durability

    def appender(self) -> Append:
        cluster = self._stack.enter_context(RemoteCluster(self._addresses))
        return RemoteProducer(cluster, self._topic, SystemClock()).append_many

    def runs(self) -> Iterator[RecordRun]:
        with RemoteCluster(self._addresses) as cluster:
            consumer = RemoteConsumer(cluster, self._topic)
            starts, ends = consumer.offsets_at(EARLIEST), consumer.offsets_at(LATEST)
            for number in consumer.partitions:
                yield from consumer.runs(number, starts[number], ends[number])
