"""Typed tables, as other programs read them: DuckDB, delta-rs, pyiceberg and Spark agree."""

from __future__ import annotations

import errno
import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pyspark.sql import SparkSession

import cordwood
import cordwood.spark
from cordwood.errors import ConfigError
from cordwood.spark.decoding.column_format import Encoding
from cordwood.spark.jobs.export import ExportOptions, run_export, table_and_tail
from cordwood.spark.jobs.row_choice import ColumnChoice, RowChoice
from cordwood.spark.tables.iceberg_table import IcebergTable
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat, read_files
from cordwood.spark.tables.time_partitions import PartitionBy
from fakes.schema_registry import FakeRegistry, running_registry
from spark.typed_topics import (
    TOPIC,
    append,
    export,
    log_places,
    places_of,
    rejected,
    rows_of,
    target,
)

FORMATS = list(TableFormat)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with running_registry() as found:
        yield found


def as_duckdb(to: LakeTarget) -> list[dict[str, Any]]:
    table = to.open()
    table.load()
    files = table.files()
    found = duckdb.connect().execute(
        'SELECT * FROM read_parquet(?, union_by_name=true) ORDER BY partition, "offset"', [files]
    )
    names = [column[0] for column in found.description]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def as_own_library(to: LakeTarget) -> list[dict[str, Any]]:
    """The table as the library of its format reads it."""
    if to.format is TableFormat.DELTA:
        import deltalake

        found = deltalake.DeltaTable(to.table).to_pyarrow_table()
    elif to.format is TableFormat.ICEBERG:
        table = to.open()
        assert isinstance(table, IcebergTable)
        found = table.catalog().load_table(to.table).scan().to_arrow()
    else:
        import pyarrow as pa
        import pyarrow.dataset as ds

        first = ds.dataset(to.table, format="parquet", partitioning="hive")
        schemas = [first.schema, *(part.physical_schema for part in first.get_fragments())]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        found = ds.dataset(
            to.table, format="parquet", partitioning="hive", schema=schema
        ).to_table()
    order: Any = [("partition", "ascending"), ("offset", "ascending")]
    return list(found.sort_by(order).to_pylist())


def as_spark(spark: SparkSession, to: LakeTarget) -> list[dict[str, Any]]:
    table = to.open()
    table.load()
    reader = spark.read.option("mergeSchema", True)
    df = reader.parquet(*table.files())
    rows = df.orderBy("partition", "offset").collect()
    return [row.asDict(recursive=True) for row in rows]


def plain(value: Any) -> Any:
    """Without fields that are null, and maps as dicts: what differs is only how readers say it."""
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items() if each is not None}
    if isinstance(value, list):
        if value and all(isinstance(each, tuple) for each in value):
            return {key: plain(each) for key, each in value}
        return [plain(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


VALUES = [
    {"id": 1, "name": "ä", "tags": ["a"], "place": {"x": 1.5}},
    {"id": 2, "name": None, "tags": [], "place": None, "paid": True},
    {"id": 3, "place": {"x": -1.0, "y": 2}, "paid": False},
]


@pytest.mark.parametrize("kind", FORMATS)
def test_all_readers_see_what_the_log_has(
    spark: SparkSession, tmp_path: Path, kind: TableFormat
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    choice = RowChoice(
        value=ColumnChoice(schema="infer"),
        key=ColumnChoice(encoding=Encoding.TEXT),
        has_text_headers=True,
        grows=True,
        partition_by=PartitionBy.DAY,
    )
    options = ExportOptions(paths=(str(data),), topics=(TOPIC,), target=to, rows=choice)
    append(data, [json.dumps(VALUES[0]).encode()], partitions=1, headers=[("h", b"1")])
    run_export(spark, options)
    append(data, [json.dumps(each).encode() for each in VALUES[1:]], partitions=1)
    run_export(spark, options)

    expected = [plain(each) for each in VALUES]
    for rows in (as_duckdb(to), as_own_library(to), as_spark(spark, to)):
        assert [plain(row["value"]) for row in rows] == expected
        assert [row["offset"] for row in rows] == [0, 1, 2]
        assert [row["key"] for row in rows] == ["key-0", "key-0", "key-1"]
        assert plain(rows[0]["headers"]) == [{"key": "h", "value": "1"}]
    append(data, [b'{"id": 4}'], partitions=1)
    everything = table_and_tail(spark, to, [str(data)]).orderBy("offset")
    assert [row["value"]["id"] for row in everything.collect()] == [1, 2, 3, 4]


# --- Confluent's serializers --------------------------------------------------------------------


def confluent_avro(registry: FakeRegistry, schema: str, values: list[Any]) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.avro import AvroSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

        client = SchemaRegistryClient({"url": registry.url})
        serializer = AvroSerializer(client, schema)
        context = SerializationContext(TOPIC, MessageField.VALUE)
        return [serializer(value, context) for value in values]


def record(*fields: tuple[str, Any]) -> str:
    return json.dumps(
        {
            "type": "record",
            "name": "Order",
            "fields": [{"name": name, "type": kind} for name, kind in fields],
        }
    )


def optional(kind: str) -> list[str]:
    return ["null", kind]


EVOLUTION: list[tuple[str, str, dict[str, Any], dict[str, Any] | str]] = [
    ("first", record(("id", "int"), ("name", "string")), {"id": 1, "name": "a"},
     {"id": 1, "name": "a"}),
    ("added", record(("id", "int"), ("name", "string"), ("size", "double")),
     {"id": 2, "name": "b", "size": 1.5}, {"id": 2, "name": "b", "size": 1.5}),
    ("removed", record(("id", "int")), {"id": 3}, {"id": 3}),
    ("renamed", record(("id", "int"), ("title", "string")), {"id": 4, "title": "d"},
     {"id": 4, "title": "d"}),
    ("widened", record(("id", "long"), ("name", "string")), {"id": 2**40, "name": "e"},
     {"id": 2**40, "name": "e"}),
    ("nullable", record(("id", optional("int")), ("name", optional("string"))),
     {"id": None, "name": None}, {}),
    ("wrong type", record(("id", "string")), {"id": "x"}, "its schema contradicts the table"),
    ("nested", record(("id", "int"), ("place", {"type": "record", "name": "P", "fields": [
        {"name": "x", "type": "int"}]})),
     {"id": 8, "place": {"x": 1}}, {"id": 8, "place": {"x": 1}}),
    ("nested, more", record(("id", "int"), ("place", {"type": "record", "name": "P", "fields": [
        {"name": "x", "type": "int"}, {"name": "y", "type": "string"}]})),
     {"id": 9, "place": {"x": 2, "y": "y"}}, {"id": 9, "place": {"x": 2, "y": "y"}}),
]  # fmt: skip


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("is_one_run", [True, False])
def test_a_table_follows_the_schemas_of_its_values(
    tmp_path: Path, registry: FakeRegistry, kind: TableFormat, is_one_run: bool
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    choice = RowChoice(value=ColumnChoice(encoding=Encoding.AVRO), registry=registry.url)
    expected: list[dict[str, Any]] = []
    refused: list[str] = []
    for name, schema, value, outcome in EVOLUTION:
        append(data, confluent_avro(registry, schema, [value]), partitions=1)  # type: ignore[arg-type]
        if name == "widened" and not kind.can_widen:
            refused.append("its schema contradicts the table: id is int32, not int64")
        elif isinstance(outcome, dict):
            expected.append(outcome)
        else:
            refused.append(outcome)
        if not is_one_run:
            export(data, to, rows=choice)
    append(data, [b"\x00\x00\x00\x03\xe7what", b"plain"], partitions=1)
    refused += ["the schema id 999 is unknown to the registry", "the value does not begin with"]
    export(data, to, rows=choice)

    for rows in (as_duckdb(to), as_own_library(to)):
        assert [plain(row["value"]) for row in rows] == expected
    reasons = [row["reason"] for row in rows_of(rejected(to))]
    assert [reason[: len(start)] for reason, start in zip(reasons, refused, strict=True)] == refused


def test_confluents_protobuf_values_are_read(tmp_path: Path, registry: FakeRegistry) -> None:
    from google.protobuf import timestamp_pb2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from confluent_kafka.schema_registry import SchemaRegistryClient
        from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
        from confluent_kafka.serialization import MessageField, SerializationContext

        client = SchemaRegistryClient({"url": registry.url})
        settings = {"use.deprecated.format": False}
        serializer = ProtobufSerializer(timestamp_pb2.Timestamp, client, settings)
        context = SerializationContext(TOPIC, MessageField.VALUE)
        values = [
            serializer(timestamp_pb2.Timestamp(seconds=n, nanos=n), context) for n in range(3)
        ]
    # The client registers compiled descriptors; registries answer with the text.
    for number in registry.schemas:
        registry.schemas[number]["schema"] = (
            'syntax = "proto3"; package google.protobuf; '
            "message Timestamp { int64 seconds = 1; int32 nanos = 2; }"
        )
    data, to = tmp_path / "data", target(tmp_path, TableFormat.ICEBERG)
    append(data, values, partitions=1)
    choice = RowChoice(value=ColumnChoice(encoding=Encoding.PROTOBUF), registry=registry.url)

    export(data, to, rows=choice)

    assert [row["value"] for row in as_own_library(to)] == [
        {"seconds": n, "nanos": n} for n in range(3)
    ]


# --- Debezium ------------------------------------------------------------------------------------


def change(op: str, before: Any, after: Any) -> bytes:
    return json.dumps(
        {"schema": {}, "payload": {"op": op, "before": before, "after": after, "ts_ms": 1000}}
    ).encode()


CHANGES = [
    change("c", None, {"id": 1, "name": "ada"}),
    change("u", {"id": 1, "name": "ada"}, {"id": 1, "name": "eve"}),
    json.dumps({"op": "r", "before": None, "after": {"id": 2, "name": "bob"}}).encode(),
    change("d", {"id": 2, "name": "bob"}, None),
    None,
    change("t", None, None),
    b'{"id": 1}',
]


@pytest.mark.parametrize("kind", FORMATS)
def test_changes_of_debezium_are_rows_with_their_operation(
    tmp_path: Path, kind: TableFormat
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    append(data, CHANGES, partitions=1)
    choice = RowChoice(value=ColumnChoice(schema="id BIGINT, name STRING"), is_debezium=True)

    export(data, to, rows=choice)

    rows = as_duckdb(to)
    assert [row["op"] for row in rows] == ["c", "u", "r", "d", None]
    assert [plain(row["value"]) for row in rows[:2]] == [
        {"id": 1, "name": "ada"},
        {"id": 1, "name": "eve"},
    ]
    assert plain(rows[3]["before"]) == {"id": 2, "name": "bob"}
    assert rows[3]["value"] is None
    assert rows[0]["changed_at"].timestamp() == 1.0
    assert [row["reason"] for row in rows_of(rejected(to))] == [
        "the op t is not a change of one row",
        "the value is not a change in Debezium's envelope: it has no op",
    ]


def test_a_table_of_changes_grows_with_the_fields_of_its_rows(tmp_path: Path) -> None:
    data, to = tmp_path / "data", target(tmp_path, TableFormat.DELTA)
    choice = RowChoice(value=ColumnChoice(schema="id BIGINT"), is_debezium=True, grows=True)
    for changed in (change("c", None, {"id": 1}), change("d", {"id": 1, "city": "Turin"}, None)):
        append(data, [changed], partitions=1)
        export(data, to, rows=choice)

    first, second = as_own_library(to)

    assert first["value"] == {"id": 1, "city": None}
    assert second["before"] == {"id": 1, "city": "Turin"}


def test_a_record_of_a_distant_year_does_not_stop_a_divided_table(tmp_path: Path) -> None:
    data, to = tmp_path / "data", target(tmp_path, TableFormat.DELTA)
    with cordwood.open(data) as store:
        config = {"message.timestamp.after.max.ms": 2**63 - 1}
        store.create_topic(TOPIC, config=config).append(b"{}", timestamp_ms=253_402_300_800_000)

    report = export(data, to, rows=RowChoice(partition_by=PartitionBy.DAY))

    assert report.totals["records"] == 1


@pytest.mark.parametrize("kind", FORMATS)
def test_a_run_that_fails_before_its_commit_leaves_no_files(
    tmp_path: Path, kind: TableFormat, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, to = tmp_path / "data", target(tmp_path, kind)
    append(data, [b"1"] * 3)
    export(data, to)
    append(data, [b"2"] * 3)
    before = sorted(path for path in tmp_path.rglob("*.parquet"))

    def full(self: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("cordwood.spark.tables.lake_files.LakeWriter.finish", full)
        with pytest.raises(OSError, match="No space left"):
            export(data, to)
    assert sorted(path for path in tmp_path.rglob("*.parquet")) == before

    export(data, to)
    assert places_of(to) == log_places(data)


def test_a_state_of_debeziums_changes_lacks_what_was_deleted(
    spark: SparkSession, tmp_path: Path
) -> None:
    from cordwood.spark.jobs.materialize import MaterializeOptions, run_materialize

    data, to = tmp_path / "data", target(tmp_path, TableFormat.DELTA)
    with cordwood.open(data) as store:
        topic = store.create_topic(TOPIC)
        for key, value in zip(
            (b"1", b"1", b"2", b"2", b"3"), (*CHANGES[:4], CHANGES[0]), strict=True
        ):
            topic.append(value, key=key)
    options = MaterializeOptions(
        paths=(str(data),),
        topic=TOPIC,
        target=to,
        rows=RowChoice(value=ColumnChoice(schema="id BIGINT, name STRING"), is_debezium=True),
        buckets=2,
    )

    run_materialize(spark, options)
    with cordwood.open(data) as store:
        store.topic(TOPIC).append(change("d", {"id": 1}, None), key=b"3")
    run_materialize(spark, options)

    table = to.open(replaces=True)
    table.load()
    rows = read_files(spark, table.files()).collect()
    assert [(bytes(row["key"]), row["decoded"].asDict()) for row in rows] == [
        (b"1", {"id": 1, "name": "eve"})
    ]


# --- a data frame --------------------------------------------------------------------------------


def test_a_data_frame_is_decoded_and_misfits_are_rescued(
    spark: SparkSession, tmp_path: Path, registry: FakeRegistry
) -> None:
    values = confluent_avro(registry, EVOLUTION[0][1], [{"id": n, "name": "a"} for n in range(2)])
    values += confluent_avro(registry, EVOLUTION[1][1], [{"id": 5, "name": "b", "size": 2.0}])
    append(tmp_path / "data", [*values, b"bad", None], partitions=1)
    df = spark.read.format("cordwood").option("subscribe", TOPIC).load(str(tmp_path / "data"))

    found = cordwood.spark.decode(
        df, format="avro", registry=registry.url, subject=f"{TOPIC}-value"
    )

    rows = found.orderBy("offset").select("decoded", "_rescued").collect()
    assert [row["decoded"] and row["decoded"].asDict() for row in rows] == [
        {"id": 0, "name": "a", "size": None},
        {"id": 1, "name": "a", "size": None},
        {"id": 5, "name": "b", "size": 2.0},
        None,
        None,
    ]
    assert bytes(rows[3]["_rescued"]["value"]) == b"bad"
    assert "does not begin" in rows[3]["_rescued"]["reason"]
    assert [rows[n]["_rescued"] for n in (0, 1, 2, 4)] == [None] * 4


def test_json_and_envelopes_of_a_data_frame_are_decoded(
    spark: SparkSession, tmp_path: Path
) -> None:
    append(tmp_path / "data", CHANGES, partitions=1)
    df = spark.read.format("cordwood").option("subscribe", TOPIC).load(str(tmp_path / "data"))

    found = cordwood.spark.decode(df, schema="infer", envelope="debezium")

    rows = found.orderBy("offset").select("decoded.op", "decoded.after.name", "_rescued.reason")
    assert [tuple(row)[:2] for row in rows.collect()] == [
        ("c", "ada"), ("u", "eve"), ("r", "bob"), ("d", None), (None, None), (None, None),
        (None, None),
    ]  # fmt: skip


def test_a_column_that_is_decoded_in_place_keeps_the_bytes_of_misfits(spark: SparkSession) -> None:
    df = spark.createDataFrame([("{}",), ('{"id": 1}',), ("no",)], "value STRING")

    found = cordwood.spark.decode(df, schema="infer", into="value").collect()

    assert [row["value"] and row["value"]["id"] for row in found] == [None, 1, None]
    assert [row["_rescued"] and row["_rescued"]["value"] for row in found] == [None, None, "no"]


def test_columns_that_cannot_be_decoded_are_refused(spark: SparkSession) -> None:
    df = spark.createDataFrame([(1, "{}")], "number INT, value STRING")

    with pytest.raises(ConfigError, match="must be binary or string, not int"):
        cordwood.spark.decode(df, schema="id INT", column="number")
    with pytest.raises(ConfigError, match="must not be the name of the decoded column"):
        cordwood.spark.decode(df, schema="id INT", into="x", rescued="X")
