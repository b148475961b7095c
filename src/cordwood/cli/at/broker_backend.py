"""A broker as a target, over Kafka's protocol."""

import time
from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Final, Self

from cordwood.cli.at.backend import (
    AppendedTo,
    CommittedFacts,
    ConfigFact,
    Extent,
    GroupFacts,
    MemberFacts,
    NewRecord,
    PartitionFacts,
    Place,
    ReplicaFacts,
    TopicFacts,
)
from cordwood.cli.at.target import BrokerTarget
from cordwood.clock import SystemClock
from cordwood.errors import BrokerRefusedError
from cordwood.format.record import Record
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.remote.record_chunk import RecordChunk, records_of_key
from cordwood.remote.refusals import is_forbidden
from cordwood.remote.remote_cluster import RemoteCluster, RemoteTopic
from cordwood.remote.remote_consumer import EARLIEST, LATEST, RemoteConsumer
from cordwood.remote.remote_groups import DEAD, DescribedGroup, RemoteGroups
from cordwood.remote.remote_operations import RemoteOperations
from cordwood.remote.remote_producer import RemoteProducer
from cordwood.remote.remote_topics import RemoteConfig, RemoteTopics

_NOT_FOUND: Final = -1
_SILENCE_S: Final = 60.0


class BrokerReader:
    """Implements `TopicReader` by fetching."""

    def __init__(
        self, cluster: RemoteCluster, topic: str, partitions: Sequence[int] | None = None
    ) -> None:
        self.topic = topic
        self._consumer = RemoteConsumer(cluster, topic, partitions)

    @property
    def partitions(self) -> Sequence[int]:
        return self._consumer.partitions

    def refresh(self) -> None:
        self._consumer.refresh()

    def extents(self) -> dict[int, Extent]:
        starts, ends = self._consumer.offsets_at(EARLIEST), self._consumer.offsets_at(LATEST)
        return {number: Extent(starts[number], ends[number]) for number in self.partitions}

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        found = self._consumer.offsets_at(timestamp_ms)
        missing = [number for number, offset in found.items() if offset == _NOT_FOUND]
        return found | (self._consumer.offsets_at(LATEST, missing) if missing else {})

    def chunks(self, partition: int, start: int, stop: int) -> Iterator[RecordChunk]:
        return self._consumer.chunks(partition, start, stop)

    def chunks_of_key(
        self, partition: int, start: int, stop: int, key: bytes
    ) -> Iterator[RecordChunk]:
        for run in self._consumer.runs(partition, start, stop):
            records = records_of_key(run, key)
            if records:
                yield RecordChunk(partition, records, records[-1].offset + 1)
        yield RecordChunk(partition, [], stop)

    def newest(self, partition: int, key: bytes) -> Record | None:
        """Reads the whole partition: a broker cannot search for a key."""
        extent = self.extents()[partition]
        newest: Record | None = None
        for chunk in self.chunks_of_key(partition, extent.start, extent.end, key):
            newest = chunk.records[-1] if chunk.records else newest
        return newest

    def news(self, positions: Mapping[int, int], timeout_s: float) -> list[RecordChunk]:
        return self._consumer.news(positions, wait_ms=int(timeout_s * 1000))


class BrokerAppender:
    """Implements `Appender` by producing."""

    def __init__(self, cluster: RemoteCluster, topic: str) -> None:
        self._cluster = cluster
        self._producer = RemoteProducer(cluster, topic, SystemClock())
        self._heard_s = time.monotonic()

    @property
    def partition_count(self) -> int:
        return self._producer.partition_count

    def append(self, records: list[NewRecord], partition: int | None) -> list[AppendedTo]:
        ranges = self._producer.append_many(records, partition=partition)
        self._heard_s = time.monotonic()
        return [AppendedTo(*part) for part in ranges]

    def idle(self) -> None:
        """Send a request now and then: brokers close idle connections after some minutes."""
        if time.monotonic() - self._heard_s > _SILENCE_S:
            self._cluster.describe([])
            self._heard_s = time.monotonic()

    def close(self) -> None:
        """Nothing to close: the backend owns the connections."""


class BrokerBackend:
    """Implements `Backend`. For one thread."""

    def __init__(self, target: BrokerTarget) -> None:
        self.cluster = RemoteCluster(target.addresses, security=target.security)
        self._topics = RemoteTopics(self.cluster)
        self._groups = RemoteGroups(self.cluster)
        self._operations = RemoteOperations(self.cluster)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self.cluster.close()

    # --- topics ------------------------------------------------------------------------------

    def topic_names(self, *, include_internal: bool) -> list[str]:
        topics = self.cluster.describe()
        return sorted(n for n, t in topics.items() if include_internal or not t.is_internal)

    def topics(self, *, include_internal: bool) -> list[TopicFacts]:
        found = self.cluster.describe()
        names = sorted(n for n, t in found.items() if include_internal or not t.is_internal)
        return self._facts([found[name] for name in names])

    def topic(self, name: str) -> TopicFacts:
        return self._facts([self.cluster.topic(name)])[0]

    def _facts(self, topics: Sequence[RemoteTopic]) -> list[TopicFacts]:
        configs = self._topics.configs((topic.name for topic in topics), hides_forbidden=True)
        sizes = self._sizes()
        return [self._topic_facts(topic, configs[topic.name], sizes) for topic in topics]

    def _sizes(self) -> dict[Place, int]:
        """The bytes of each partition; nothing if the user may not see them."""
        sizes: dict[Place, int] = {}
        try:
            for directory in self._topics.log_dirs():
                sizes |= directory.sizes
        except BrokerRefusedError as error:
            if not is_forbidden(error):
                raise
        return sizes

    def _topic_facts(
        self,
        topic: RemoteTopic,
        config: Mapping[str, RemoteConfig],
        sizes: Mapping[Place, int],
    ) -> TopicFacts:
        led = [number for number, leader in topic.leaders.items() if leader >= 0]
        extents = BrokerReader(self.cluster, topic.name, led).extents() if led else {}
        is_cluster = self._operations.has_controllers
        return TopicFacts(
            name=topic.name,
            topic_id=encode_topic_id(topic.topic_id),
            is_internal=topic.is_internal,
            partitions=tuple(
                PartitionFacts(
                    partition=number,
                    start_offset=extents[number].start if number in extents else None,
                    end_offset=extents[number].end if number in extents else None,
                    size_bytes=sizes.get((topic.name, number)),
                    problem=None if number in extents else "no leader",
                    replicas=_replicas(topic, number) if is_cluster else None,
                )
                for number in topic.partitions
            ),
            config={k: ConfigFact(value=c.value, source=c.source) for k, c in config.items()},
        )

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None,
        config: Mapping[str, str],
        replicas: int | None = None,
    ) -> int:
        return self._topics.create(name, partitions=partitions, config=config, replicas=replicas)

    def alter_topic(
        self, name: str, *, partitions: int | None, config: Mapping[str, str | None]
    ) -> None:
        self.cluster.topic(name)
        if config:
            self._topics.alter_config(name, config)
        if partitions is not None:
            self._topics.grow(name, partitions)

    def delete_topic(self, name: str) -> None:
        self._topics.delete(name)

    def trim_topic(self, name: str, before: Mapping[int, int]) -> dict[int, int]:
        return self._topics.trim(name, before)

    # --- records -----------------------------------------------------------------------------

    def reader(self, topic: str, partitions: Sequence[int] | None = None) -> BrokerReader:
        return BrokerReader(self.cluster, topic, partitions)

    def appender(self, topic: str) -> BrokerAppender:
        return BrokerAppender(self.cluster, topic)

    # --- groups ------------------------------------------------------------------------------

    def groups(self) -> list[GroupFacts]:
        return [self._group_facts(self._groups.describe(g.name)) for g in self._groups.listed()]

    def group(self, name: str) -> GroupFacts | None:
        described = self._groups.describe(name)
        found = self._group_facts(described)
        return None if described.state == DEAD and not found.committed else found

    def _group_facts(self, described: DescribedGroup) -> GroupFacts:
        committed = self._groups.committed(described.name)
        extents = self._extents(committed)
        return GroupFacts(
            name=described.name,
            kind=described.kind,
            state=described.state,
            assignor=described.assignor or None,
            members=tuple(
                MemberFacts(
                    member_id=member.member_id,
                    client_id=member.client_id,
                    host=member.host,
                    partitions=member.partitions,
                )
                for member in described.members
            ),
            committed=tuple(
                CommittedFacts(
                    topic=place[0],
                    partition=place[1],
                    offset=offset,
                    metadata=metadata,
                    start_offset=extents[place].start if place in extents else None,
                    end_offset=extents[place].end if place in extents else None,
                )
                for place, (offset, metadata) in sorted(committed.items())
            ),
        )

    def _extents(self, places: Mapping[Place, object]) -> dict[Place, Extent]:
        """The extents of the partitions that exist and have a leader."""
        found: dict[Place, Extent] = {}
        names = {topic for topic, _ in places}
        for name, topic in (self.cluster.describe(sorted(names)) if names else {}).items():
            wanted = [n for t, n in places if t == name and topic.leaders.get(n, -1) >= 0]
            if wanted:
                extents = BrokerReader(self.cluster, name, wanted).extents()
                found |= {(name, number): extent for number, extent in extents.items()}
        return found

    def commit(self, group: str, offsets: Mapping[Place, int]) -> None:
        self._groups.commit(group, {place: (offset, "") for place, offset in offsets.items()})

    def delete_group(self, name: str) -> None:
        self._groups.delete(name)


def _replicas(topic: RemoteTopic, number: int) -> ReplicaFacts:
    leader, found = topic.leaders[number], topic.replicas[number]
    return ReplicaFacts(
        leader=leader if leader >= 0 else None,
        replicas=found.all,
        in_sync=found.in_sync,
        offline=found.offline,
    )
