"""Dumps the records of a batch: sizes or contents, decoded markers and group records."""

import base64
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Final
from uuid import UUID

from cordwood.cli.dump.lines import DumpLine, DumpOptions, Fields
from cordwood.cli.readable_values import counted, printable, shown_time
from cordwood.cli.records.record_format import text_field
from cordwood.errors import FormatError
from cordwood.format.control_record import ControlType, decode_control_key, decode_marker
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
from cordwood.format.record import Record
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.format.transaction_records import decode_transaction_key, decode_transaction_value

_UNSET: Final[tuple[object, ...]] = (None, "", [], {}, -1)  # -1: no time, no epoch
_MARKERS: Final = (ControlType.ABORT, ControlType.COMMIT)
_VALUE_DECODERS: Final = {
    ConsumerGroupRecordType.GROUP_EPOCH: decode_group_epoch,
    ConsumerGroupRecordType.MEMBER: decode_member,
    ConsumerGroupRecordType.TARGET_EPOCH: decode_target_epoch,
    ConsumerGroupRecordType.TARGET: decode_target,
    ConsumerGroupRecordType.CURRENT: decode_current,
}


def record_lines(
    records: list[Record], options: DumpOptions, *, is_control: bool
) -> Iterator[DumpLine]:
    """A line for each record at or after `options.start_offset`."""
    for record in records:
        if record.offset < options.start_offset:
            continue
        fields: Fields = {
            "kind": "record",
            "offset": record.offset,
            "timestamp_ms": record.timestamp_ms,
            "key_bytes": None if record.key is None else len(record.key),
            "value_bytes": None if record.value is None else len(record.value),
            "headers": len(record.headers),
        }
        words = [f"    {record.offset}", shown_time(record.timestamp_ms)[:23]]
        if is_control:
            control = _control(record)
            fields["control"] = control
            words.append(_in_words(control))
        elif options.decodes_groups or options.decodes_transactions:
            decoded = _content(record, _decoded if options.decodes_groups else _transaction)
            fields["decoded"] = decoded
            words.append(_in_words(decoded))
        else:
            words.append(_sizes(record))
        if options.shows_values and not is_control:
            fields |= text_field("key", record.key) | text_field("value", record.value)
            fields["headers"] = [{"name": n} | text_field("value", v) for n, v in record.headers]
            words += _contents(record)
        yield DumpLine("  ".join(words), fields)


def _sizes(record: Record) -> str:
    key = "no key" if record.key is None else f"key {len(record.key)} B"
    value = "tombstone" if record.value is None else f"value {len(record.value)} B"
    headers = f", {counted(len(record.headers), 'header')}" if record.headers else ""
    return f"{key}, {value}{headers}"


def _contents(record: Record) -> Iterator[str]:
    if record.key is not None:
        yield f"key={printable(record.key)}"
    if record.value is not None:
        yield f"value={printable(record.value)}"
    for name, value in record.headers:
        yield f"{printable(name.encode())}: {printable(value)}"


# --- decoding ---------------------------------------------------------------------------------


def _control(record: Record) -> Fields:
    """The marker in a control record, or why it cannot be decoded."""
    try:
        key = decode_control_key(record.key or b"")
        if key.type not in _MARKERS:
            return {"type": key.type.name}
        marker = decode_marker(record.key or b"", record.value or b"")
    except FormatError as error:
        return {"undecodable": error.reason}
    return {"type": marker.type.name, "coordinator_epoch": marker.coordinator_epoch}


def _content(record: Record, decode: Callable[[Record], Fields]) -> Fields:
    """The content of a record of an internal topic, or why it cannot be decoded."""
    try:
        return decode(record)
    except (FormatError, ValueError) as error:
        return {"undecodable": getattr(error, "reason", None) or str(error)}


def _decoded(record: Record) -> Fields:
    key = decode_group_key(record.key or b"")
    where: Fields
    if isinstance(key, OffsetKey):
        where = {"group": key.group, "topic": key.topic, "partition": key.partition}
        return _with_value("offset", where, record.value, decode_offset_value)
    if isinstance(key, GroupMetadataKey):
        return _with_value("group", {"group": key.group}, record.value, decode_group_metadata)
    other = decode_consumer_group_key(record.key or b"")
    where = {"group": other.group} | ({"detail": other.detail} if other.detail else {})
    decode = _VALUE_DECODERS.get(other.type)
    return _with_value(other.type.name.lower(), where, record.value, decode)


def _transaction(record: Record) -> Fields:
    where: Fields = {"transactional_id": decode_transaction_key(record.key or b"")}

    def decode(value: bytes) -> dict[str, object]:
        found = decode_transaction_value(value)
        content = _plain(found)
        assert isinstance(content, dict)
        return {
            **content,
            "state": found.state.kafka_name,
            "partitions": [f"{topic}:{number}" for topic, number in sorted(found.partitions)],
        }

    return _with_value("transaction", where, record.value, decode)


def _with_value(
    kind: str, where: Fields, value: bytes | None, decode: Callable[[bytes], object] | None
) -> Fields:
    decoded: Fields = {"type": kind, **where}
    if value is None:
        return decoded | {"deleted": True}
    if decode is None:
        return decoded | {"value_bytes": len(value)}
    content = _plain(decode(value))
    return decoded | (content if isinstance(content, dict) else {"value": content})


def _plain(value: object) -> object:
    """A decoded value as JSON can hold it."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, UUID):
        return encode_topic_id(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(_plain(key)): _plain(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item) for item in value)  # type: ignore[type-var]  # names, numbers
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _in_words(fields: Fields) -> str:
    """``offset: group=g topic=t partition=0``, with control characters escaped."""
    if "undecodable" in fields:
        text = f"cannot be decoded: {fields['undecodable']}"
    else:
        rest = [f"{k}={v}" for k, v in fields.items() if k != "type" and v not in _UNSET]
        text = " ".join([f"{fields['type']}{':' if rest else ''}", *rest])
    return printable(text.encode(errors="replace"))
