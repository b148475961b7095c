"""Applies records of the metadata log to an image.

    builder = ImageBuilder(image)
    builder.apply(record)        any number of times, in the order of the log
    change = builder.finish(end=..., epoch=...)

A record that does not fit the image is a `FormatError`: either the log is damaged or this reader
misunderstands it, and both are reasons to stop instead of guessing. Records between the begin and
the end of a metadata transaction are kept back and applied together, or dropped.

`image` costs one copy of each mapping that changed: a change of one partition among 100,000 copies
the list of topics and the partitions of one topic, not the partitions of all.
"""

from collections.abc import Callable, Mapping
from typing import Final
from uuid import UUID

from cordwood.cluster.image.access_image import (
    AccessRule,
    DelegationToken,
    QuotaEntity,
    ScramCredential,
)
from cordwood.cluster.image.broker_image import (
    BrokerImage,
    ControllerImage,
    Endpoint,
    VersionRange,
)
from cordwood.cluster.image.edited_map import EditedMap
from cordwood.cluster.image.image_change import ImageChange, TopicPartition
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.cluster.image.metadata_record import MetadataRecord
from cordwood.cluster.image.partition_change import (
    SharedTuples,
    changed_partition,
    new_partition,
    without_eligible,
)
from cordwood.cluster.image.partition_image import PartitionImage
from cordwood.cluster.image.record_schemas import RecordType
from cordwood.errors import FormatError
from cordwood.protocol.message_codec import Fields
from cordwood.quantities import Offset
from cordwood.value_class import replace

TOPIC_CONFIG: Final = 2
BROKER_CONFIG: Final = 4

# Records of one metadata transaction. The largest one there is creates a topic: one record for
# each partition, and Kafka refuses more than 10,000 partitions at once.
_TRANSACTION_RECORDS_MAX: Final = 1_000_000


class ImageBuilder:
    """An image under change. For one thread. After an error it must not be used again."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._next_producer_id = image.next_producer_id
        self._brokers = EditedMap(image.brokers)
        self._controllers = EditedMap(image.controllers)
        self._topics = EditedMap(image.topics)
        self._topic_ids = EditedMap(image.topic_ids)
        self._configs = EditedMap(image.configs)
        self._features = EditedMap(image.features)
        self._access_rules = EditedMap(image.access_rules)
        self._quotas = EditedMap(image.quotas)
        self._scram_users = EditedMap(image.scram_users)
        self._tokens = EditedMap(image.tokens)
        self._partitions: dict[UUID, dict[int, PartitionImage]] = {}  # of the changed topics
        self._changed_partitions: set[TopicPartition] = set()
        self._deleted_topics: set[UUID] = set()
        self._transaction: list[MetadataRecord] | None = None
        self._shared = SharedTuples()
        self._appliers: dict[RecordType, Callable[[Fields], None]] = {
            RecordType.REGISTER_BROKER: self._register_broker,
            RecordType.UNREGISTER_BROKER: self._unregister_broker,
            RecordType.TOPIC: self._topic,
            RecordType.PARTITION: self._partition,
            RecordType.CONFIG: self._config,
            RecordType.PARTITION_CHANGE: self._partition_change,
            RecordType.FENCE_BROKER: self._fence_broker,
            RecordType.UNFENCE_BROKER: self._unfence_broker,
            RecordType.REMOVE_TOPIC: self._remove_topic,
            RecordType.DELEGATION_TOKEN: self._delegation_token,
            RecordType.USER_SCRAM_CREDENTIAL: self._scram_credential,
            RecordType.FEATURE_LEVEL: self._feature_level,
            RecordType.CLIENT_QUOTA: self._client_quota,
            RecordType.PRODUCER_IDS: self._producer_ids,
            RecordType.BROKER_REGISTRATION_CHANGE: self._broker_registration_change,
            RecordType.ACCESS_CONTROL_ENTRY: self._access_control_entry,
            RecordType.REMOVE_ACCESS_CONTROL_ENTRY: self._remove_access_control_entry,
            RecordType.REMOVE_USER_SCRAM_CREDENTIAL: self._remove_scram_credential,
            RecordType.REMOVE_DELEGATION_TOKEN: self._remove_delegation_token,
            RecordType.REGISTER_CONTROLLER: self._register_controller,
            RecordType.CLEAR_ELR: self._clear_elr,
        }

    @property
    def is_in_transaction(self) -> bool:
        """Whether records are kept back."""
        return self._transaction is not None

    def apply(self, record: MetadataRecord) -> None:
        """Apply the next record. Raises `FormatError` if it does not fit."""
        kind = record.type
        if kind in _TRANSACTION_TYPES:
            self._bound_transaction(kind)
        elif self._transaction is not None:
            if len(self._transaction) >= _TRANSACTION_RECORDS_MAX:
                raise FormatError(
                    f"a metadata transaction has more than {_TRANSACTION_RECORDS_MAX} records"
                )
            self._transaction.append(record)
        elif kind not in _WITHOUT_EFFECT:
            self._appliers[kind](record.fields)

    def finish(self, *, end: Offset, epoch: int) -> ImageChange:
        """The image with all records below `end`, and what differs from the last one.

        Inside a transaction, `end` is where it begins.
        """
        old = self._image
        for topic_id, partitions in self._partitions.items():
            topic = self._topics.get(topic_id)
            assert topic is not None, topic_id
            self._topics.put(topic_id, replace(topic, partitions=partitions))
        change = ImageChange(
            old=old,
            new=old,
            topics=frozenset(self._topics.changed - self._deleted_topics),
            deleted_topics=frozenset(self._deleted_topics),
            partitions=frozenset(self._changed_partitions),
            brokers=frozenset(self._brokers.changed),
            controllers=frozenset(self._controllers.changed),
            configs=frozenset(self._configs.changed),
            features=frozenset(self._features.changed),
            access_rules=frozenset(self._access_rules.changed),
            quotas=frozenset(self._quotas.changed),
            scram_users=frozenset(self._scram_users.changed),
            tokens=frozenset(self._tokens.changed),
        )
        self._image = MetadataImage(
            end=end,
            epoch=epoch,
            brokers=self._brokers.finish(),
            topics=self._topics.finish(),
            topic_ids=self._topic_ids.finish(),
            configs=self._configs.finish(),
            features=self._features.finish(),
            next_producer_id=self._next_producer_id,
            controllers=self._controllers.finish(),
            access_rules=self._access_rules.finish(),
            quotas=self._quotas.finish(),
            scram_users=self._scram_users.finish(),
            tokens=self._tokens.finish(),
        )
        self._partitions = {}
        self._changed_partitions = set()
        self._deleted_topics = set()
        return replace(change, new=self._image)

    def _bound_transaction(self, kind: RecordType) -> None:
        held = self._transaction
        if (kind is RecordType.BEGIN_TRANSACTION) != (held is None):
            state = "none is open" if held is None else "one is open already"
            raise FormatError(f"the metadata log has {kind.name} while {state}")
        if held is None:
            self._transaction = []
            return
        self._transaction = None
        if kind is RecordType.END_TRANSACTION:
            for record in held:
                self.apply(record)

    # --- brokers and controllers ---------------------------------------------------------------

    def _register_broker(self, record: Fields) -> None:
        self._brokers.put(
            record.broker_id,
            BrokerImage(
                node_id=record.broker_id,
                epoch=record.broker_epoch,
                incarnation=record.incarnation_id,
                endpoints=_endpoints(record),
                rack=record.rack,
                is_fenced=record.fenced,
                is_leaving=record.in_controlled_shutdown,
                directories=tuple(record.log_dirs),
                cordoned=tuple(record.cordoned_log_dirs or ()),
                features=_features(record),
            ),
        )

    def _unregister_broker(self, record: Fields) -> None:
        self._brokers.remove(record.broker_id)

    def _fence_broker(self, record: Fields) -> None:
        broker = self._broker(record.id, record.epoch, "FENCE_BROKER")
        self._brokers.put(record.id, replace(broker, is_fenced=True))

    def _unfence_broker(self, record: Fields) -> None:
        broker = self._broker(record.id, record.epoch, "UNFENCE_BROKER")
        self._brokers.put(record.id, replace(broker, is_fenced=False))

    def _broker_registration_change(self, record: Fields) -> None:
        kind = "BROKER_REGISTRATION_CHANGE"
        broker = self._broker(record.broker_id, record.broker_epoch, kind)
        if record.fenced not in _FENCING or record.in_controlled_shutdown not in (0, 1):
            raise FormatError(
                f"{kind} has fenced={record.fenced} and "
                f"in_controlled_shutdown={record.in_controlled_shutdown}, which mean nothing"
            )
        fenced = _FENCING[record.fenced]
        cordoned = record.cordoned_log_dirs
        self._brokers.put(
            record.broker_id,
            replace(
                broker,
                is_fenced=broker.is_fenced if fenced is None else fenced,
                is_leaving=broker.is_leaving or record.in_controlled_shutdown == 1,
                directories=tuple(record.log_dirs) or broker.directories,
                cordoned=broker.cordoned if cordoned is None else tuple(cordoned),
            ),
        )

    def _broker(self, node_id: int, epoch: int, kind: str) -> BrokerImage:
        broker = self._brokers.get(node_id)
        if broker is None:
            raise FormatError(f"{kind} is about broker {node_id}, which is not registered")
        if broker.epoch != epoch:
            raise FormatError(
                f"{kind} is about epoch {epoch} of broker {node_id}, which has {broker.epoch}"
            )
        return broker

    def _register_controller(self, record: Fields) -> None:
        self._controllers.put(
            record.controller_id,
            ControllerImage(
                node_id=record.controller_id,
                incarnation=record.incarnation_id,
                endpoints=_endpoints(record),
                features=_features(record),
            ),
        )

    # --- topics and partitions -----------------------------------------------------------------

    def _topic(self, record: Fields) -> None:
        topic_id, name = record.topic_id, record.name
        known = self._topic_ids.get(name)
        if known is not None:
            raise FormatError(f"TOPIC creates {name!r}, which exists with the id {known}")
        self._topics.put(topic_id, TopicImage(name=name, topic_id=topic_id, partitions={}))
        self._topic_ids.put(name, topic_id)
        self._partitions[topic_id] = {}

    def _remove_topic(self, record: Fields) -> None:
        topic_id = record.topic_id
        topic = self._topics.remove(topic_id)
        if topic is None:
            raise FormatError(f"REMOVE_TOPIC is about {topic_id}, which is not a topic")
        self._topic_ids.remove(topic.name)
        self._configs.remove((TOPIC_CONFIG, topic.name))
        numbers = self._partitions.pop(topic_id, topic.partitions)
        self._changed_partitions.difference_update([(topic_id, number) for number in numbers])
        self._deleted_topics.add(topic_id)

    def _partition(self, record: Fields) -> None:
        partitions = self._partitions_of(record.topic_id, "PARTITION")
        partitions[record.partition_id] = new_partition(record, self._shared)
        self._changed_partitions.add((record.topic_id, record.partition_id))

    def _partition_change(self, record: Fields) -> None:
        partitions = self._partitions_of(record.topic_id, "PARTITION_CHANGE")
        known = partitions.get(record.partition_id)
        if known is None:
            raise FormatError(
                f"PARTITION_CHANGE is about partition {record.partition_id} of topic "
                f"{record.topic_id}, which does not exist"
            )
        partitions[record.partition_id] = changed_partition(known, record, self._shared)
        self._changed_partitions.add((record.topic_id, record.partition_id))

    def _clear_elr(self, record: Fields) -> None:
        if record.topic_name:
            topic_id = self._topic_ids.get(record.topic_name)
            if topic_id is None:
                raise FormatError(
                    f"CLEAR_ELR is about topic {record.topic_name!r}, which does not exist"
                )
            self._clear_elr_of(topic_id)
            return
        for topic_id in list(self._topics):
            self._clear_elr_of(topic_id)

    def _clear_elr_of(self, topic_id: UUID) -> None:
        topic = self._topics.get(topic_id)
        assert topic is not None, topic_id
        present: Mapping[int, PartitionImage] = self._partitions.get(topic_id, topic.partitions)
        cleared = {
            number: without_eligible(partition)
            for number, partition in present.items()
            if partition.eligible or partition.last_known
        }
        if cleared:
            self._partitions_of(topic_id, "CLEAR_ELR").update(cleared)
            self._changed_partitions.update([(topic_id, number) for number in cleared])

    def _partitions_of(self, topic_id: UUID, kind: str) -> dict[int, PartitionImage]:
        """The partitions of one topic, to be changed."""
        partitions = self._partitions.get(topic_id)
        if partitions is None:
            topic = self._topics.get(topic_id)
            if topic is None:
                raise FormatError(f"{kind} is about topic {topic_id}, which does not exist")
            partitions = self._partitions[topic_id] = dict(topic.partitions)
        return partitions

    # --- configs, features, producer ids ---------------------------------------------------------

    def _config(self, record: Fields) -> None:
        resource = (record.resource_type, record.resource_name)
        configs = dict(self._configs.get(resource) or {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if configs:
            self._configs.put(resource, configs)
        else:
            self._configs.remove(resource)

    def _feature_level(self, record: Fields) -> None:
        if record.feature_level == 0:
            self._features.remove(record.name)
        else:
            self._features.put(record.name, record.feature_level)

    def _producer_ids(self, record: Fields) -> None:
        self._next_producer_id = record.next_producer_id

    # --- access --------------------------------------------------------------------------------

    def _access_control_entry(self, record: Fields) -> None:
        self._access_rules.put(
            record.id,
            AccessRule(
                record.resource_type,
                record.resource_name,
                record.pattern_type,
                record.principal,
                record.host,
                record.operation,
                record.permission_type,
            ),
        )

    def _remove_access_control_entry(self, record: Fields) -> None:
        if self._access_rules.remove(record.id) is None:
            raise FormatError(f"REMOVE_ACCESS_CONTROL_ENTRY is about {record.id}, which is no rule")

    def _client_quota(self, record: Fields) -> None:
        entity: QuotaEntity = tuple(
            sorted(
                ((each.entity_type, each.entity_name) for each in record.entity),
                key=lambda pair: pair[0],
            )
        )
        quotas = dict(self._quotas.get(entity) or {})
        if record.remove:
            quotas.pop(record.key, None)
        else:
            quotas[record.key] = record.value
        if quotas:
            self._quotas.put(entity, quotas)
        else:
            self._quotas.remove(entity)

    def _scram_credential(self, record: Fields) -> None:
        self._scram_users.put(
            (record.name, record.mechanism),
            ScramCredential(
                salt=record.salt,
                stored_key=record.stored_key,
                server_key=record.server_key,
                iterations=record.iterations,
            ),
        )

    def _remove_scram_credential(self, record: Fields) -> None:
        self._scram_users.remove((record.name, record.mechanism))

    def _delegation_token(self, record: Fields) -> None:
        self._tokens.put(
            record.token_id,
            DelegationToken(
                record.owner,
                record.requester,
                tuple(record.renewers),
                record.issue_timestamp,
                record.max_timestamp,
                record.expiration_timestamp,
            ),
        )

    def _remove_delegation_token(self, record: Fields) -> None:
        self._tokens.remove(record.token_id)


_TRANSACTION_TYPES: Final = frozenset(
    {
        RecordType.BEGIN_TRANSACTION,
        RecordType.END_TRANSACTION,
        RecordType.ABORT_TRANSACTION,
    }
)
_WITHOUT_EFFECT: Final = frozenset({RecordType.NO_OP, RecordType.ZK_MIGRATION_STATE})
_FENCING: Final[Mapping[int, bool | None]] = {0: None, 1: True, -1: False}


def _endpoints(record: Fields) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(each.name, each.host, each.port, each.security_protocol)
        for each in record.end_points
    )


def _features(record: Fields) -> dict[str, VersionRange]:
    return {
        each.name: VersionRange(each.min_supported_version, each.max_supported_version)
        for each in record.features
    }
