"""Kafka's own decoder of metadata records and ours read the same log, and say the same.

`DumpLogSegments --cluster-metadata-decoder` prints each record as JSON. Our encoder writes records
of every type and version, with random values; then Kafka's controllers write, and we read.
"""

from __future__ import annotations

import base64
import json
import re
from pathlib import Path
from typing import Any
from uuid import UUID

from hypothesis import HealthCheck, Phase, given, settings

from cordwood.cluster.control.broker_lifecycle import Phase as BrokerPhase
from cordwood.cluster.control.metadata_batches import split_batches
from cordwood.cluster.image.metadata_record import MetadataRecord, decode_record, encode_record
from cordwood.cluster.image.record_schemas import RECORD_SCHEMAS, RecordType
from cordwood.format.batch import decode_batch
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.message_codec import Fields
from cordwood.protocol.message_schema import FieldSchema, structure_schema
from fakes.message_values import messages
from fakes.metadata_log import Value, metadata_batch
from interop.control_member import ControlMember
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.kraft_requests import ask, create_topic

EXAMPLES_OF_EACH = 5


def every_type_and_version() -> list[tuple[RecordType, int]]:
    return [
        (kind, version)
        for kind, text in RECORD_SCHEMAS.items()
        for version in structure_schema(text)[0]
    ]


def examples_of(kind: RecordType, version: int) -> list[dict[str, Any]]:
    """Some mappings with every field of the version, the same in each run."""
    fields = structure_schema(RECORD_SCHEMAS[kind])[1]
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=EXAMPLES_OF_EACH,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(example=messages(fields, version))
    def collect(example: dict[str, Any]) -> None:
        found.append(example)

    collect()
    return found


def random_records() -> list[Value]:
    """Records of every type and version."""
    return [
        (kind, version, example)
        for kind, version in every_type_and_version()
        for example in examples_of(kind, version)
    ]


def dumped(kafka: KafkaTools, path: Path) -> list[dict[str, Any]]:
    printed = kafka.dump_segments(path, options=("--cluster-metadata-decoder",))
    found = re.findall(r" payload: (\{.*\})$", printed, re.MULTILINE)
    return [json.loads(text) for text in found]


def camel(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.capitalize() for word in others)


def as_kafka_prints(value: Any, fields: tuple[FieldSchema, ...], version: int) -> dict[str, Any]:
    """Our structure in the words of Kafka's JSON, which leaves out tagged fields at defaults."""
    found: dict[str, Any] = {}
    for field in fields:
        if version not in field.versions:
            continue
        item = getattr(value, field.name)
        if field.tag is not None and _is_default(item, field):
            continue
        found[camel(field.name)] = _printed(item, field, version)
    return found


def _is_default(item: Any, field: FieldSchema) -> bool:
    return bool(item == field.default)


def _printed(item: Any, field: FieldSchema, version: int) -> Any:
    if item is None:
        return None
    if field.is_array:
        return [_printed_one(each, field, version) for each in item]
    return _printed_one(item, field, version)


def _printed_one(item: Any, field: FieldSchema, version: int) -> Any:
    if isinstance(item, Fields):
        return as_kafka_prints(item, field.fields, version)
    if isinstance(item, UUID):
        return base64.urlsafe_b64encode(item.bytes).decode().rstrip("=")
    if isinstance(item, bytes):
        return base64.b64encode(item).decode()
    return item


def in_kafkas_words(record: MetadataRecord) -> dict[str, Any]:
    _, fields = structure_schema(RECORD_SCHEMAS[record.type])
    return {
        "type": f"{record.type.name}_RECORD",
        "version": record.version,
        "data": as_kafka_prints(record.fields, fields, record.version),
    }


def test_kafka_reads_every_type_and_version_that_we_write(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    values = random_records()
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(metadata_batch(values, offset=0, epoch=1))

    theirs = dumped(kafka, path)

    ours = [
        in_kafkas_words(decode_record(encode_record(kind, version, fields)))
        for kind, version, fields in values
    ]
    assert len(theirs) == len(values)
    for mine, their in zip(ours, theirs, strict=True):
        assert mine == their


def read_log(path: Path) -> list[MetadataRecord]:
    batches, _ = split_batches(memoryview(path.read_bytes()))
    return [
        decode_record(record.value)
        for batch in batches
        if not batch.is_control
        for record in decode_batch(batch.data)
    ]


def test_we_read_what_kafkas_controllers_write(kafka: KafkaTools, tmp_path: Path) -> None:
    authorizer = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with KraftControllers(kafka, tmp_path, properties=authorizer) as controllers:
        with ControlMember(controllers.bootstrap, controllers.cluster_id) as member:
            member.wait_until(BrokerPhase.RUNNING)
            create_topic(member, "orders", [1], [1])
            creation = {
                "resource_type": 2,
                "resource_name": "orders",
                "resource_pattern_type": 3,
                "principal": "User:x",
                "host": "*",
                "operation": 3,
                "permission_type": 3,
            }
            ask(member, ApiKey.CREATE_ACLS, 3, {"creations": [creation]})
            entity = [{"entity_type": "user", "entity_name": "x"}]
            ops = [{"key": "request_percentage", "value": 5.5, "remove": False}]
            ask(
                member,
                ApiKey.ALTER_CLIENT_QUOTAS,
                1,
                {"entries": [{"entity": entity, "ops": ops}]},
            )
            member.in_loop(member.control.allocate_producer_ids)
            upsertion = {"name": "x", "mechanism": 1, "iterations": 4096}
            password = {"salt": b"s" * 16, "salted_password": b"p" * 32}
            ask(
                member,
                ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
                0,
                {"upsertions": [{**upsertion, **password}]},
            )
            image = member.wait_for_image(lambda image: image.scram_users)
            member.in_loop(lambda done: member.control.leave(lambda: done(True)))
        log = controllers.members[0].directory / "data" / "__cluster_metadata-0" / f"{0:020}.log"
    assert len(image.access_rules) == 1
    assert image.quotas == {(("user", "x"),): {"request_percentage": 5.5}}
    assert image.next_producer_id == 1000

    theirs, ours = dumped(kafka, log), [in_kafkas_words(record) for record in read_log(log)]

    assert ours == theirs
    assert len({record["type"] for record in ours}) >= 10
