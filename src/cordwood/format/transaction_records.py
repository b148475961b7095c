"""The state of transactions, as records of the topic ``__transaction_state``. Big-endian.

There is one key per transactional id; the newest record counts, and a tombstone forgets the id.

    size   field
    2      version               0 is the only one written
    2 + n  transactional id      int16 length, UTF-8

A value starts with its version, and has the same fields in both:

    size   field                 version 0               version 1 (flexible)
    2      version
    8      producer_id
    2      producer_epoch
    4      timeout_ms
    1      state                 see `TransactionState`
           partitions            int32 length, -1 null   varint of length + 1, 0 null
             topic               int16 length            varint of length + 1
             numbers, int32 each int32 length            varint of length + 1
             tagged fields       -                       varint count
    8      last_update_ms
    8      start_ms
           tagged fields         -                       0 previous producer id, int64
                                                         1 next producer id, int64
                                                         2 client's transaction version, int16
                                                         3 next producer epoch, int16

The partitions are null exactly in the state Empty. A tag at its default is left out.
"""

import struct
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from typing import Final

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.groups.group_fields import (
    INT16,
    INT32,
    INT64,
    FieldReader,
    encode_compact_string,
    encode_string,
    encode_varint,
)
from cordwood.format.groups.group_offsets import group_partition
from cordwood.quantities import NO_PRODUCER_ID, NO_TIMESTAMP, ProducerId, TimestampMs
from cordwood.value_class import dataclass

TopicPartition = tuple[str, int]

_KEY_VERSION: Final = 0
_VERSION: Final = 1
_PREVIOUS_ID_TAG: Final = 0
_NEXT_ID_TAG: Final = 1
_CLIENT_VERSION_TAG: Final = 2

_HEAD: Final = struct.Struct(">hqhib")  # from the version to the state
_TIMES: Final = struct.Struct(">qq")
_NO_PARTITIONS: Final = b"\0"
_PREVIOUS_ID: Final = struct.Struct(">BBBq")  # the number of tags, and this one
_CLIENT_VERSION: Final = struct.Struct(">BBh")
# What was encoded for the last transactions is remembered, unless it is large.
_REMEMBERED_MAX: Final = 1024
_REMEMBERED_ID_MAX: Final = 256
_REMEMBERED_PARTITIONS_MAX: Final = 8


class TransactionState(IntEnum):
    """How far the newest transaction of a transactional id has come. The numbers are stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """The name in answers to clients: ``PrepareCommit``."""
        return "".join(word.capitalize() for word in self.name.split("_"))


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionValue:
    """The newest state of a transactional id, as far as it is stored."""

    producer_id: ProducerId
    producer_epoch: int
    timeout_ms: int
    state: TransactionState
    partitions: frozenset[TopicPartition] = frozenset()
    last_update_ms: TimestampMs
    start_ms: TimestampMs = NO_TIMESTAMP
    previous_producer_id: ProducerId = NO_PRODUCER_ID
    next_producer_id: ProducerId = NO_PRODUCER_ID
    client_version: int = 0


def encode_transaction_key(transactional_id: str) -> bytes:
    if len(transactional_id) <= _REMEMBERED_ID_MAX:
        return _remembered_key(transactional_id)
    return _encode_key(transactional_id)


def _encode_key(transactional_id: str) -> bytes:
    return INT16.pack(_KEY_VERSION) + encode_string("transactional id", transactional_id)


_remembered_key = lru_cache(_REMEMBERED_MAX)(_encode_key)


def decode_transaction_key(data: bytes) -> str:
    """The transactional id. Raises `UnsupportedFormatError` for a key of a later version."""
    fields = FieldReader(data)
    version = fields.int16("key version")
    if version != _KEY_VERSION:
        raise UnsupportedFormatError("version of the key of a transaction", version)
    transactional_id = fields.string("transactional id")
    fields.expect_end()
    return transactional_id


def encode_transaction_value(value: TransactionValue) -> bytes:
    """The bytes of `value`, in version 1."""
    partitions = value.partitions
    return b"".join(
        (
            _HEAD.pack(
                _VERSION, value.producer_id, value.producer_epoch, value.timeout_ms, value.state
            ),
            _NO_PARTITIONS
            if value.state is TransactionState.EMPTY
            else _remembered_partitions(partitions)
            if len(partitions) <= _REMEMBERED_PARTITIONS_MAX
            else _encode_partitions(partitions),
            _TIMES.pack(value.last_update_ms, value.start_ms),
            _encode_tags(value),
        )
    )


def decode_transaction_value(data: bytes) -> TransactionValue:
    """Read version 0 or 1; what version 0 lacks gets its default."""
    fields = FieldReader(data)
    version = fields.int16("value version")
    if not 0 <= version <= _VERSION:
        raise UnsupportedFormatError("version of the state of a transaction", version)
    is_flexible = version >= _VERSION
    producer_id = ProducerId(fields.int64("producer id"))
    producer_epoch = fields.int16("producer epoch")
    timeout_ms = fields.int32("timeout")
    state = _state(fields)
    partitions = _compact_partitions(fields) if is_flexible else _sized_partitions(fields)
    last_update_ms = TimestampMs(fields.int64("time of the last update"))
    start_ms = TimestampMs(fields.int64("time of the start"))
    tags = fields.tagged_fields() if is_flexible else {}
    fields.expect_end()
    return TransactionValue(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=partitions,
        last_update_ms=last_update_ms,
        start_ms=start_ms,
        previous_producer_id=ProducerId(_tagged_int64(tags, _PREVIOUS_ID_TAG)),
        next_producer_id=ProducerId(_tagged_int64(tags, _NEXT_ID_TAG)),
        client_version=_tagged_int16(tags, _CLIENT_VERSION_TAG),
    )


def transaction_partition(transactional_id: str, partition_count: int) -> int:
    """The partition of ``__transaction_state`` that holds the records of a transactional id."""
    return group_partition(transactional_id, partition_count)


# --- partitions ------------------------------------------------------------------------------


def _encode_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    by_topic: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        by_topic.setdefault(topic, []).append(number)
    parts = [encode_varint(len(by_topic) + 1)]
    for topic, numbers in by_topic.items():
        parts.append(encode_compact_string("topic name", topic))
        parts.append(encode_varint(len(numbers) + 1))
        parts += (INT32.pack(number) for number in numbers)
        parts.append(encode_varint(0))
    return b"".join(parts)


# A producer writes to the same few partitions in one transaction after the other.
_remembered_partitions = lru_cache(_REMEMBERED_MAX)(_encode_partitions)


def _compact_partitions(fields: FieldReader) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(fields.compact_array_length("partitions")):
        topic = fields.compact_string("topic name")
        for _ in range(fields.compact_array_length("numbers of partitions")):
            found.add((topic, fields.int32("number of a partition")))
        fields.tagged_fields()
    return frozenset(found)


def _sized_partitions(fields: FieldReader) -> frozenset[TopicPartition]:
    found: set[TopicPartition] = set()
    for _ in range(fields.nullable_array_length("partitions")):
        topic = fields.string("topic name")
        for _ in range(fields.array_length("numbers of partitions")):
            found.add((topic, fields.int32("number of a partition")))
    return frozenset(found)


# --- state and tags --------------------------------------------------------------------------


def _state(fields: FieldReader) -> TransactionState:
    number = fields.int8("state")
    try:
        return TransactionState(number)
    except ValueError:
        raise FormatError(
            f"{number} is no state of a transaction", position=fields.position - 1
        ) from None


def _encode_tags(value: TransactionValue) -> bytes:
    previous, version = value.previous_producer_id, value.client_version
    if previous != NO_PRODUCER_ID and value.next_producer_id == NO_PRODUCER_ID:  # as usual
        if not version:
            return _PREVIOUS_ID.pack(1, _PREVIOUS_ID_TAG, INT64.size, previous)
        return _PREVIOUS_ID.pack(2, _PREVIOUS_ID_TAG, INT64.size, previous) + _CLIENT_VERSION.pack(
            _CLIENT_VERSION_TAG, INT16.size, version
        )
    tags: dict[int, bytes] = {}
    if value.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_ID_TAG] = INT64.pack(value.previous_producer_id)
    if value.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_ID_TAG] = INT64.pack(value.next_producer_id)
    if value.client_version:
        tags[_CLIENT_VERSION_TAG] = INT16.pack(value.client_version)
    parts = [encode_varint(len(tags))]
    for tag, content in tags.items():
        parts += (encode_varint(tag), encode_varint(len(content)), content)
    return b"".join(parts)


def _tagged_int64(tags: Mapping[int, bytes], tag: int) -> int:
    content = tags.get(tag)
    return NO_PRODUCER_ID if content is None else FieldReader(content).int64("tagged producer id")


def _tagged_int16(tags: Mapping[int, bytes], tag: int) -> int:
    content = tags.get(tag)
    return 0 if content is None else FieldReader(content).int16("tagged transaction version")
