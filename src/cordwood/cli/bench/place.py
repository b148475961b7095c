"""Where `cordwood bench` measures: a temporary topic."""

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final, Protocol

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

if TYPE_CHECKING:
    from cordwood.log.partition.partition_log import PartitionLog
    from cordwood.log.topics.topic import Topic

_PREFIX: Final = "cordwood-bench-"
_TOPIC: Final = "bench"
_IGNORED: Final = "remote-log-index-cache"  # neither Kafka nor Cordwood looks for logs in it

Pair = tuple[bytes | None, bytes | None]  # key and value
Append = Callable[[list[Pair]], object]


class BenchPlace(Protocol):
    """A topic to measure on."""

    durability: str

    def appender(self) -> Append:
        """A function for one thread; it returns when the records are acknowledged."""
        ...

    def runs(self) -> Iterator[RecordRun]:
        """All records; each run is valid until the next one is requested."""
        ...


@contextlib.contextmanager
def directory_place(
    directory: str, *, partitions: int, config: Mapping[str, str]
) -> Iterator[BenchPlace]:
    """A topic in a temporary store inside `directory`, which is always removed."""
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
    """The temporary directory, and its parent if that was created too.

    In a data directory the parent is one that brokers ignore, so leftovers of a power failure do
    no harm.
    """
    if not os.path.exists(os.path.join(directory, META_PROPERTIES)):
        return tempfile.mkdtemp(prefix=f".{_PREFIX}", dir=directory), None
    around = os.path.join(directory, _IGNORED)
    is_new = not os.path.isdir(around)
    os.makedirs(around, exist_ok=True)
    return tempfile.mkdtemp(prefix=_PREFIX, dir=around), around if is_new else None


class _DirectoryPlace:
    def __init__(self, topic: "Topic[PartitionLog]") -> None:
        self._topic = topic
        self.durability = str(topic.config.durability)

    def appender(self) -> Append:
        topic = self._topic

        def append(records: list[Pair]) -> object:
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
    """A temporary topic on a broker, which is always deleted."""
    name = f"{_PREFIX}{uuid.uuid4().hex[:12]}"
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(RemoteCluster(target.addresses, security=target.security))
        topics = RemoteTopics(cluster)
        topics.create(name, partitions=partitions, config=config)
        stack.callback(_delete, target, name)
        known = topics.configs([name])[name].get("durability")
        durability = "unknown" if known is None else known.value
        yield _BrokerPlace(target, name, durability, stack)


def _delete(target: BrokerTarget, name: str) -> None:
    """Delete over a new connection: the others may have been interrupted in a request."""
    with RemoteCluster(target.addresses, security=target.security) as cluster:
        RemoteTopics(cluster).delete(name)


class _BrokerPlace:
    def __init__(
        self,
        target: BrokerTarget,
        topic: str,
        durability: str,
        stack: contextlib.ExitStack,
    ) -> None:
        self._target = target
        self._topic = topic
        self._stack = stack
        self.durability = durability

    def _connected(self) -> RemoteCluster:
        return RemoteCluster(self._target.addresses, security=self._target.security)

    def appender(self) -> Append:
        cluster = self._stack.enter_context(self._connected())
        return RemoteProducer(cluster, self._topic, SystemClock()).append_many

    def runs(self) -> Iterator[RecordRun]:
        with self._connected() as cluster:
            consumer = RemoteConsumer(cluster, self._topic)
            starts, ends = consumer.offsets_at(EARLIEST), consumer.offsets_at(LATEST)
            for number in consumer.partitions:
                yield from consumer.runs(number, starts[number], ends[number])
