"""Records as rows of a table, and one record on its own page. Pure."""

from collections.abc import Iterable

from cordwood.console.decoding.decoded import NONE, Decoded
from cordwood.console.decoding.internal_records import decode_internal
from cordwood.console.decoding.masking import TopicMasking
from cordwood.console.decoding.value_decoders import (
    decode,
    internal_content,
    preview,
    visible,
)
from cordwood.format.record import Record
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageRow:
    """A record in a table. Texts are cut; `kind` is the decoder that understood the value."""

    partition: int
    offset: int
    timestamp_ms: int | None
    key: str | None
    key_kind: str
    value: str | None
    kind: str
    header_count: int
    size: int
    is_tombstone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class HeaderView:
    name: str
    value: Decoded


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageView:
    """One record, whole, as far as limits allow."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: Decoded
    value: Decoded
    headers: tuple[HeaderView, ...]
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoders:
    """What a reader chose for keys and values; `auto` tries all."""

    key: str = "auto"
    value: str = "auto"


def message_row(
    topic: str, partition: int, record: Record, masking: TopicMasking, decoders: Decoders
) -> MessageRow:
    key, value = _decoded(topic, record, masking, decoders)
    return MessageRow(
        partition=partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=None if key.kind == NONE else preview(key),
        key_kind=key.kind,
        value=None if value.kind == NONE else preview(value),
        kind=value.kind,
        header_count=len(record.headers),
        size=len(record.key or b"") + len(record.value or b""),
        is_tombstone=record.value is None,
    )


def message_view(
    topic: str, partition: int, record: Record, masking: TopicMasking, decoders: Decoders
) -> MessageView:
    key, value = _decoded(topic, record, masking, decoders)
    return MessageView(
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        key=key,
        value=value,
        headers=tuple(
            HeaderView(name=visible(name), value=masking.header(name, decode(content)))
            for name, content in record.headers
        ),
        size=len(record.key or b"") + len(record.value or b""),
    )


def _decoded(
    topic: str, record: Record, masking: TopicMasking, decoders: Decoders
) -> tuple[Decoded, Decoded]:
    if record.key is not None and decoders == Decoders():
        known = decode_internal(topic, record.key, record.value)
        if known is not None:
            key = internal_content(known[0], len(record.key))
            value = (
                decode(None)
                if record.value is None
                else internal_content(known[1], len(record.value))
            )
            return masking.key(key), masking.value(value)
    key = decode(record.key, decoders.key)
    value = decode(record.value, decoders.value)
    return masking.key(key), masking.value(value)


def newest_first(rows: Iterable[MessageRow], count: int) -> list[MessageRow]:
    """The newest rows of all partitions, by time."""
    return sorted(rows, key=lambda r: (r.timestamp_ms or 0, r.partition, r.offset), reverse=True)[
        :count
    ]


def oldest_first(rows: Iterable[MessageRow], count: int) -> list[MessageRow]:
    return sorted(rows, key=lambda r: (r.timestamp_ms or 0, r.partition, r.offset))[:count]


def record_as_json(
    partition: int, record: Record, topic: str, masking: TopicMasking, decoders: Decoders
) -> dict[str, object]:
    """A record for an export: decoded, and masked as on the page."""
    seen = message_view(topic, partition, record, masking, decoders)
    return {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": _exported(seen.key),
        "value": _exported(seen.value),
        "headers": [{"name": h.name, "value": _exported(h.value)} for h in seen.headers],
    }


def _exported(decoded: Decoded) -> object:
    if decoded.kind == NONE:
        return None
    return decoded.text if decoded.content is None else decoded.content
