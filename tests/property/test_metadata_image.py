"""Images and what changed between them, for any sequence of records; and any bytes at all."""

from __future__ import annotations

import contextlib
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cordwood.cluster.image.image_builder import ImageBuilder
from cordwood.cluster.image.metadata_image import NO_METADATA, MetadataImage
from cordwood.cluster.image.metadata_record import (
    MetadataRecord,
    decode_record,
    encode_record,
)
from cordwood.cluster.image.record_schemas import RECORD_SCHEMAS, RecordType
from cordwood.errors import FormatError
from cordwood.protocol.message_schema import structure_schema
from cordwood.quantities import Offset
from fakes.message_values import messages

KINDS = sorted(RECORD_SCHEMAS)
# Few ids, so that records are about the same things.
TOPICS = st.integers(1, 3).map(lambda number: UUID(int=number))
NODES = st.integers(1, 2)
REPLICAS = st.lists(NODES, min_size=1, max_size=2, unique=True)


@st.composite
def any_record(draw: st.DrawFn) -> tuple[RecordType, int, dict[str, Any]]:
    kind = draw(st.sampled_from(KINDS))
    versions, fields = structure_schema(RECORD_SCHEMAS[kind])
    version = draw(st.integers(versions.start, versions.stop - 1))
    return kind, version, draw(messages(fields, version))


def topic(draw: st.DrawFn) -> tuple[RecordType, dict[str, Any]]:
    topic_id = draw(TOPICS)
    return RecordType.TOPIC, {"topic_id": topic_id, "name": f"t{topic_id.int}"}


@st.composite
def sensible_record(draw: st.DrawFn) -> tuple[RecordType, dict[str, Any]]:
    place = {"topic_id": draw(TOPICS), "partition_id": draw(st.integers(0, 2))}
    replicas = draw(REPLICAS)
    node = {"broker_id": draw(NODES), "broker_epoch": draw(st.integers(1, 2))}
    chosen: tuple[RecordType, dict[str, Any]] = draw(
        st.sampled_from(
            [
                topic(draw),
                (RecordType.REMOVE_TOPIC, {"topic_id": place["topic_id"]}),
                (
                    RecordType.PARTITION,
                    {**place, "replicas": replicas, "isr": replicas, "leader": replicas[0]},
                ),
                (RecordType.PARTITION_CHANGE, {**place, "leader": replicas[-1]}),
                (RecordType.PARTITION_CHANGE, {**place, "isr": replicas}),
                (RecordType.REGISTER_BROKER, {**node, "fenced": True}),
                (RecordType.UNREGISTER_BROKER, node),
                (RecordType.BROKER_REGISTRATION_CHANGE, {**node, "fenced": -1}),
                (RecordType.CLEAR_ELR, {"topic_name": ""}),
                (RecordType.BEGIN_TRANSACTION, {}),
                (RecordType.END_TRANSACTION, {}),
                (RecordType.ABORT_TRANSACTION, {}),
            ]
        )
    )
    return chosen


@given(record=any_record())
def test_a_record_survives_the_wire(record: tuple[RecordType, int, dict[str, Any]]) -> None:
    kind, version, fields = record

    decoded = decode_record(encode_record(kind, version, fields))

    assert (decoded.type, decoded.version) == (kind, version)
    again = encode_record(
        kind, version, {name: _mapping(getattr(decoded.fields, name)) for name in fields}
    )
    assert decode_record(again) == decoded


def _mapping(value: Any) -> Any:
    if hasattr(value, "names"):
        return {name: _mapping(getattr(value, name)) for name in value.names}
    return [_mapping(each) for each in value] if isinstance(value, tuple) else value


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_format_error(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        decode_record(data)


@given(record=any_record(), cut=st.integers(0, 60), flips=st.lists(st.integers(0, 400)))
def test_a_damaged_record_is_a_record_or_a_format_error(
    record: tuple[RecordType, int, dict[str, Any]], cut: int, flips: list[int]
) -> None:
    data = bytearray(encode_record(*record))
    for at in flips:
        data[at % len(data)] ^= 1 << (at % 8)

    try:
        decoded = decode_record(bytes(data[: max(len(data) - cut, 0)]))
        ImageBuilder(NO_METADATA).apply(decoded)
    except FormatError:
        pass


@given(
    records=st.lists(sensible_record(), max_size=30),
    portions=st.lists(st.integers(1, 6), min_size=1, max_size=10),
)
def test_portions_give_the_same_image_as_one_run_and_changes_name_every_difference(
    records: list[tuple[RecordType, dict[str, Any]]], portions: list[int]
) -> None:
    fitting = _fitting([decode_record(encode_record(kind, 0, fields)) for kind, fields in records])
    whole, parts = ImageBuilder(NO_METADATA), ImageBuilder(NO_METADATA)
    before = NO_METADATA
    changes = []
    accepted = 0
    for record in fitting:
        whole.apply(record)
        parts.apply(record)
        accepted += 1
        if accepted % portions[accepted % len(portions)] == 0:
            changes.append(parts.finish(end=Offset(accepted), epoch=0))
    changes.append(parts.finish(end=Offset(accepted), epoch=0))

    assert changes[-1].new == whole.finish(end=Offset(accepted), epoch=0).new
    for change in changes:
        assert change.old is before or change.old == before
        assert _differences(change.old, change.new) <= (
            {("topic", topic_id) for topic_id in change.topics | change.deleted_topics}
            | {("partition", place) for place in change.partitions}
            | {("broker", node_id) for node_id in change.brokers}
        )
        before = change.new


def _fitting(records: list[MetadataRecord]) -> list[MetadataRecord]:
    """Those before the first that does not fit: no builder may be used after that one."""
    builder = ImageBuilder(NO_METADATA)
    for index, record in enumerate(records):
        try:
            builder.apply(record)
        except FormatError:
            return records[:index]
    return records


def _differences(old: MetadataImage, new: MetadataImage) -> set[tuple[str, Any]]:
    found: set[tuple[str, Any]] = {
        ("broker", node_id)
        for node_id in old.brokers.keys() | new.brokers.keys()
        if old.brokers.get(node_id) != new.brokers.get(node_id)
    }
    for topic_id in old.topics.keys() | new.topics.keys():
        if (topic_id in old.topics) != (topic_id in new.topics):
            found.add(("topic", topic_id))
        if topic_id not in new.topics:
            continue
        here = new.topics[topic_id].partitions
        there = old.topics[topic_id].partitions if topic_id in old.topics else {}
        found |= {
            ("partition", (topic_id, number))
            for number in here.keys() | there.keys()
            if here.get(number) != there.get(number)
        }
    return found
