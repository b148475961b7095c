"""Records of Kafka's own topics: committed offsets, groups, transactions."""

import dataclasses
from enum import Enum
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError
from cordwood.format.file_names import CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC
from cordwood.format.groups.consumer_group_records import (
    ConsumerGroupRecordType,
    decode_consumer_group_key,
    decode_current,
    decode_group_epoch,
    decode_member,
    decode_target,
    decode_target_epoch,
)
from cordwood.format.groups.group_metadata import decode_group_metadata
from cordwood.format.groups.group_offsets import (
    GroupMetadataKey,
    OffsetKey,
    decode_group_key,
    decode_offset_value,
)
from cordwood.format.transaction_records import decode_transaction_key, decode_transaction_value

_VALUES: Final = {
    ConsumerGroupRecordType.GROUP_EPOCH: decode_group_epoch,
    ConsumerGroupRecordType.MEMBER: decode_member,
    ConsumerGroupRecordType.TARGET_EPOCH: decode_target_epoch,
    ConsumerGroupRecordType.TARGET: decode_target,
    ConsumerGroupRecordType.CURRENT: decode_current,
}


def decode_internal(topic: str, key: bytes, value: bytes | None) -> tuple[object, object] | None:
    """The key and the value of a record of an internal topic; None if it is not one we know."""
    try:
        if topic == CONSUMER_OFFSETS_TOPIC:
            return _group_record(key, value)
        if topic == TRANSACTION_STATE_TOPIC:
            name = {"transactional_id": decode_transaction_key(key)}
            return name, None if value is None else _plain(decode_transaction_value(value))
    except (FormatError, ValueError, IndexError):
        return None
    return None


def _group_record(key: bytes, value: bytes | None) -> tuple[object, object]:
    known = decode_group_key(key)
    if isinstance(known, OffsetKey):
        return _plain(known), None if value is None else _plain(decode_offset_value(value))
    if isinstance(known, GroupMetadataKey):
        return _plain(known), None if value is None else _plain(decode_group_metadata(value))
    member = decode_consumer_group_key(key)
    decode = _VALUES.get(member.type)
    shown = None if value is None or decode is None else _plain(decode(value))
    return _plain(member), shown


def _plain(value: object) -> object:
    """A value as what JSON has."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, Enum):
        return value.name.lower()
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, dict):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        items = sorted(value, key=repr) if isinstance(value, (set, frozenset)) else value
        return [_plain(item) for item in items]
    return value
