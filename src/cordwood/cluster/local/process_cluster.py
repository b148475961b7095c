"""What the processes of one node are told: the topics of the catalog, and which process has what.

It speaks the language of Kafka's metadata log, so a process learns from its keeper as a broker
learns from controllers. Every partition has one replica. Nothing is saved: topics are in the
catalog, owners follow from a rule, and leader epochs begin above those of the logs.

Pure: events in, encoded records out. Each call returns the records that it adds to the image.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.image_builder import TOPIC_CONFIG, ImageBuilder
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage, TopicImage
from cordwood.cluster.image.metadata_record import decode_record, encode_record
from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.cluster.image.record_schemas import RecordType
from cordwood.log.topics.topic_catalog import TopicEntry
from cordwood.quantities import Offset
from cordwood.value_class import dataclass

# What all processes can do; see `membership` for what the names mean.
FEATURES: Final[Mapping[str, int]] = MappingProxyType({"metadata.version": 30, "group.version": 1})
TRANSACTION_FEATURES: Final[Mapping[str, int]] = MappingProxyType({"transaction.version": 2})
_VERSIONS: Final = {RecordType.REGISTER_BROKER: 3, RecordType.PARTITION: 1}
_EPOCH: Final = 1  # of the one controller there is


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessMember:
    """One process as clients know it."""

    node_id: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None = None


class ProcessCluster:
    """The image of one set of processes. For one thread at a time."""

    def __init__(
        self,
        members: Sequence[ProcessMember],
        *,
        owner_of: Callable[[str, int], int],
        first_epoch: int,
        features: Mapping[str, int] = FEATURES,
    ) -> None:
        """`owner_of` gives the index of the member that has a partition.

        All partitions are led in `first_epoch` first, which must be above all epochs of the logs:
        clients take metadata with a smaller epoch than they know for old.
        """
        self._members = members
        self._owner_of = owner_of
        self._first_epoch = first_epoch
        self._topics: Mapping[str, TopicEntry] = {}
        self.image = NO_METADATA
        self._apply(_feature_records(features))

    # --- processes ---------------------------------------------------------------------------

    def epoch_of(self, index: int) -> int:
        """The epoch of the present life of a process; -1 before its first."""
        broker = self.image.brokers.get(self._members[index].node_id)
        return -1 if broker is None else broker.epoch

    def begins(self, index: int, incarnation: UUID) -> list[bytes]:
        """A process begins a life. It leads its partitions in new epochs, and is not ready yet."""
        member = self._members[index]
        is_first = member.node_id not in self.image.brokers
        records = [_registration(member, self.image.end, incarnation, is_fenced=True)]
        if not is_first:
            for topic in self.image.topics.values():
                for number, partition in topic.partitions.items():
                    if partition.leader == member.node_id:
                        records.append(_election(topic.topic_id, number, member.node_id))
        return self._apply(records)

    def is_ready(self, index: int) -> list[bytes]:
        """A process has opened its logs: clients may be sent to it."""
        return self._fencing(index, RecordType.UNFENCE_BROKER)

    def ends(self, index: int) -> list[bytes]:
        """A process has ended: until its next life, its partitions are not available."""
        return self._fencing(index, RecordType.FENCE_BROKER)

    def _fencing(self, index: int, kind: RecordType) -> list[bytes]:
        node_id = self._members[index].node_id
        return self._apply([_record(kind, id=node_id, epoch=self.epoch_of(index))])

    def turn(self) -> list[bytes]:
        """Nothing of the image changes, but something that was told before this record."""
        return self._apply([_record(RecordType.NO_OP)])

    # --- topics ------------------------------------------------------------------------------

    def topics_are(self, topics: Mapping[str, TopicEntry]) -> list[bytes]:
        """The catalog has these topics now."""
        before, self._topics = self._topics, topics
        if before is topics:
            return []
        records: list[bytes] = []
        for name, entry in before.items():
            now = topics.get(name)
            if now is None or now.topic_id != entry.topic_id:
                records.append(_record(RecordType.REMOVE_TOPIC, topic_id=entry.topic_id))
        for name, entry in topics.items():
            old = before.get(name)
            if old is entry:
                continue
            if old is not None and old.topic_id != entry.topic_id:
                old = None
            records += self._changes(old, entry)
        return self._apply(records)

    def _changes(self, old: TopicEntry | None, entry: TopicEntry) -> Iterator[bytes]:
        name, topic_id = entry.name, entry.topic_id
        if old is None:
            yield _record(RecordType.TOPIC, name=name, topic_id=topic_id)
        for number in range(0 if old is None else old.partitions, entry.partitions):
            node_id = self._members[self._owner_of(name, number)].node_id
            yield _partition(
                topic_id, number, node_id, leader_epoch=self._first_epoch, partition_epoch=0
            )
        known: Mapping[str, str] = {} if old is None else old.config
        for key in [*entry.config, *(key for key in known if key not in entry.config)]:
            if entry.config.get(key) != known.get(key):
                yield _config(name, key, entry.config.get(key))

    # --- the image ---------------------------------------------------------------------------

    def snapshot(self) -> list[bytes]:
        """Records that make the image from nothing."""
        image = self.image
        records = _feature_records(image.features)
        for member in self._members:
            broker = image.brokers.get(member.node_id)
            if broker is not None:
                records.append(
                    _registration(
                        member, broker.epoch, broker.incarnation, is_fenced=broker.is_fenced
                    )
                )
        for topic in image.topics.values():
            records += _described(image, topic)
        return records

    def _apply(self, records: list[bytes]) -> list[bytes]:
        self.image = applied(self.image, records, Offset(self.image.end + len(records)))
        return records


def applied(image: MetadataImage, records: Sequence[bytes], end: Offset) -> MetadataImage:
    """The image after `records`, the last of which has the offset `end` - 1."""
    if not records:
        return image
    builder = ImageBuilder(image)
    for record in records:
        builder.apply(decode_record(record))
    return builder.finish(end=end, epoch=_EPOCH).new


def _feature_records(levels: Mapping[str, int]) -> list[bytes]:
    return [
        _record(RecordType.FEATURE_LEVEL, name=name, feature_level=level)
        for name, level in levels.items()
    ]


def _record(kind: RecordType, **fields: Any) -> bytes:
    return encode_record(kind, _VERSIONS.get(kind, 0), fields)


def _registration(
    member: ProcessMember, epoch: int, incarnation: UUID, *, is_fenced: bool
) -> bytes:
    return _record(
        RecordType.REGISTER_BROKER,
        broker_id=member.node_id,
        incarnation_id=incarnation,
        broker_epoch=epoch,
        end_points=[
            {
                "name": each.listener,
                "host": each.host,
                "port": each.port,
                "security_protocol": each.security_protocol,
            }
            for each in member.endpoints
        ],
        features=[],
        rack=member.rack,
        fenced=is_fenced,
        log_dirs=[],
    )


def _election(topic_id: UUID, number: int, node_id: int) -> bytes:
    return _record(
        RecordType.PARTITION_CHANGE, partition_id=number, topic_id=topic_id, leader=node_id
    )


def _partition(
    topic_id: UUID, number: int, node_id: int, *, leader_epoch: int, partition_epoch: int
) -> bytes:
    return _record(
        RecordType.PARTITION,
        partition_id=number,
        topic_id=topic_id,
        replicas=[node_id],
        isr=[node_id],
        removing_replicas=[],
        adding_replicas=[],
        leader=node_id,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
        directories=[],
    )


def _config(topic: str, key: str, value: str | None) -> bytes:
    return _record(
        RecordType.CONFIG, resource_type=TOPIC_CONFIG, resource_name=topic, name=key, value=value
    )


def _described(image: MetadataImage, topic: TopicImage) -> Iterator[bytes]:
    yield _record(RecordType.TOPIC, name=topic.name, topic_id=topic.topic_id)
    for number, partition in topic.partitions.items():
        yield _present(topic.topic_id, number, partition)
    for key, value in image.config_of(TOPIC_CONFIG, topic.name).items():
        yield _config(topic.name, key, value)


def _present(topic_id: UUID, number: int, partition: PartitionImage) -> bytes:
    return _partition(
        topic_id,
        number,
        partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
