"""``cordwood spark export`` and ``materialize``: write topics to tables."""

import base64
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from cordwood.cli.options import TopicArgument, TopicsArgument, parse_pairs
from cordwood.cli.spark.job_run import (
    SourceAtOption,
    SparkJob,
    job_command,
    source_paths,
)
from cordwood.errors import ConfigError
from cordwood.quantities import parse_duration_ms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cordwood.spark.decoding.column_format import Encoding
    from cordwood.spark.jobs.job_progress import Report
    from cordwood.spark.jobs.job_report import JobReport
    from cordwood.spark.tables.lake_target import LakeTarget

_Value = TypeVar("_Value")

FormatOption = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="Table format: parquet, delta or iceberg.")
]
TableOption = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="Directory or URL of the table; for iceberg its name, for example lake.orders.",
    ),
]
WarehouseOption = Annotated[
    str | None,
    typer.Option("--warehouse", metavar="DIR|URL", help="Warehouse of the Iceberg catalog."),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="KEY=VALUE",
        help="Property of the Iceberg catalog (uri, s3.endpoint, …) or of Delta's object store; "
        "repeatable.",
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--value-schema",
        metavar="SCHEMA",
        help="Schema of values: 'id BIGINT, name STRING' for JSON; Avro's or Protobuf's text; or "
        "@FILE.",
    ),
]
LossOption = Annotated[
    bool,
    typer.Option(
        "--allow-data-loss", help="Continue if records were deleted before they were read."
    ),
]


ValueFormatOption = Annotated[
    str | None,
    typer.Option(
        "--value-format",
        metavar="FORMAT",
        help="Decode values: text, json, avro or protobuf. Default: json with --value-schema, "
        "else bytes.",
    ),
]
ValueMessageOption = Annotated[
    str | None,
    typer.Option("--value-message", metavar="NAME", help="Protobuf message of the values."),
]
RegistryOption = Annotated[
    str | None,
    typer.Option(
        "--registry",
        metavar="URL",
        envvar="CORDWOOD_SCHEMA_REGISTRY",
        help="Schema registry; values begin with the id of their schema.",
    ),
]
EnvelopeOption = Annotated[
    str | None,
    typer.Option("--envelope", metavar="KIND", help="Values are changes: debezium."),
]
FollowOption = Annotated[
    bool, typer.Option("--follow", help="Go on, and commit new records, until stopped.")
]
EveryOption = Annotated[
    str, typer.Option("--every", metavar="DURATION", help="How often --follow commits.")
]
ExpireOption = Annotated[
    str,
    typer.Option("--expire", metavar="DURATION", help="--upkeep expires versions of this age."),
]


@job_command
def export(
    topics: TopicsArgument,
    *,
    table: TableOption,
    table_format: FormatOption = "parquet",
    warehouse: WarehouseOption = None,
    properties: PropertyOption = None,
    value_format: ValueFormatOption = None,
    value_schema: Annotated[
        str | None,
        typer.Option(
            "--value-schema",
            metavar="SCHEMA",
            help="Schema of values: 'id BIGINT, name STRING' or infer for JSON; Avro's or "
            "Protobuf's text; or @FILE.",
        ),
    ] = None,
    value_message: ValueMessageOption = None,
    key_format: Annotated[
        str | None, typer.Option("--key-format", metavar="FORMAT", help="The same for keys.")
    ] = None,
    key_schema: Annotated[
        str | None, typer.Option("--key-schema", metavar="SCHEMA", help="The same for keys.")
    ] = None,
    key_message: Annotated[
        str | None, typer.Option("--key-message", metavar="NAME", help="The same for keys.")
    ] = None,
    headers: Annotated[
        str | None, typer.Option("--headers", metavar="FORMAT", help="Headers: bytes or text.")
    ] = None,
    registry: RegistryOption = None,
    envelope: EnvelopeOption = None,
    evolve: Annotated[
        str | None,
        typer.Option(
            "--evolve",
            metavar="RULE",
            help="add: new fields become columns. pinned: they are left out. Default: add with a "
            "registry, else pinned.",
        ),
    ] = None,
    partition_by: Annotated[
        str | None,
        typer.Option(
            "--partition-by", metavar="UNIT", help="Divide a new table by hour, day or month."
        ),
    ] = None,
    commit_records: Annotated[
        int | None,
        typer.Option("--commit-records", help="Records per commit. Default: 100 million."),
    ] = None,
    follow: FollowOption = False,
    every: EveryOption = "10s",
    replay_rejected: Annotated[
        bool,
        typer.Option(
            "--replay-rejected", help="Decode rejected rows again; move those that fit now."
        ),
    ] = False,
    upkeep: Annotated[
        bool,
        typer.Option("--upkeep", help="Merge small files, expire old versions, remove leftovers."),
    ] = False,
    expire: ExpireOption = "5d",
    allow_data_loss: LossOption = False,
    at: SourceAtOption = None,
    dry_run: bool,
) -> SparkJob:
    """Export records to a table, and update it on later runs. Each offset is in the table once.

    Rows that do not fit the schema go to TABLE_rejected, with the reason.

    \b
    Examples:
      cordwood spark export orders --table /srv/tables/orders
      cordwood spark export orders --table sales.orders --format iceberg --warehouse /srv/lake
      cordwood spark export orders --table /srv/orders --format delta --value-schema infer --follow
      cordwood spark export orders --table /srv/orders --value-format avro --registry http://sr:8081
    """
    from cordwood.spark.jobs.export import COMMIT_RECORDS, ExportOptions, run_export
    from cordwood.spark.jobs.row_choice import ColumnChoice, RowChoice
    from cordwood.spark.tables.lake_table import UpkeepPolicy
    from cordwood.spark.tables.time_partitions import PartitionBy

    choice = RowChoice(
        key=ColumnChoice(
            encoding=_encoding("--key-format", key_format),
            schema=read_schema(key_schema),
            message=key_message,
        ),
        value=ColumnChoice(
            encoding=_encoding("--value-format", value_format),
            schema=read_schema(value_schema),
            message=value_message,
        ),
        registry=registry,
        has_text_headers=_one_of("--headers", headers, {"bytes": False, "text": True}),
        is_debezium=_one_of("--envelope", envelope, {"debezium": True}),
        grows=_one_of("--evolve", evolve, {"add": True, "pinned": False}),
        partition_by=_one_of("--partition-by", partition_by, {each: each for each in PartitionBy}),
    )
    options = ExportOptions(
        paths=source_paths(at),
        topics=tuple(topics),
        target=lake_target(table_format, table, warehouse, properties),
        rows=choice,
        commit_records=COMMIT_RECORDS if commit_records is None else commit_records,
        fails_on_data_loss=not allow_data_loss,
        is_dry_run=dry_run,
        follow_s=_duration_s("--every", every) if follow else None,
        replays=replay_rejected,
        upkeep=UpkeepPolicy(expire_ms=int(_duration_s("--expire", expire) * 1000))
        if upkeep
        else None,
    )

    def run(spark: "SparkSession | None", report: "Report") -> "JobReport":
        if not follow or dry_run:
            return run_export(spark, options, report)
        with stopped_by_signals() as stop:
            return run_export(spark, options, report, stop=stop)

    return SparkJob(run=run, needs_spark=not dry_run)


@contextmanager
def stopped_by_signals() -> Iterator[threading.Event]:
    """An event that SIGINT and SIGTERM set, instead of what they do otherwise."""
    stop = threading.Event()
    kinds = (signal.SIGINT, signal.SIGTERM)
    before = [signal.signal(kind, lambda *_: stop.set()) for kind in kinds]
    try:
        yield stop
    finally:
        for kind, handler in zip(kinds, before, strict=True):
            signal.signal(kind, handler)


def _encoding(option: str, text: str | None) -> "Encoding | None":
    from cordwood.spark.decoding.column_format import Encoding

    return _one_of(option, text, {each.value: each for each in Encoding})


def _one_of(option: str, text: str | None, values: "Mapping[str, _Value]") -> "_Value | None":
    if text is None:
        return None
    found = text.strip().lower()
    if found not in values:
        raise ConfigError(option, text, f"must be one of {', '.join(values)}")
    return values[found]


def _duration_s(option: str, text: str) -> float:
    try:
        return parse_duration_ms(text) / 1000
    except ValueError as error:
        raise ConfigError(option, text, str(error)) from error


@job_command
def materialize(
    topic: TopicArgument,
    *,
    table: TableOption,
    table_format: FormatOption = "parquet",
    warehouse: WarehouseOption = None,
    properties: PropertyOption = None,
    value_format: ValueFormatOption = None,
    value_schema: SchemaOption = None,
    value_message: ValueMessageOption = None,
    registry: RegistryOption = None,
    envelope: EnvelopeOption = None,
    buckets: Annotated[
        int | None,
        typer.Option(
            "--buckets", help="Parts of a new table; each is rewritten separately. Default: 16."
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Start again from the beginning of the log.")
    ] = False,
    follow: FollowOption = False,
    every: EveryOption = "10s",
    upkeep: Annotated[
        bool, typer.Option("--upkeep", help="Expire old versions, remove leftovers.")
    ] = False,
    expire: ExpireOption = "5d",
    allow_data_loss: LossOption = False,
    at: SourceAtOption = None,
    dry_run: bool,
) -> SparkJob:
    """Write the current value of each key of a topic to a table; tombstones delete rows.

    \b
    Examples:
      cordwood spark materialize accounts --table /srv/tables/accounts --format delta
      cordwood spark materialize accounts --table /srv/tables/accounts --follow --every 30s
      cordwood spark materialize users --table lake/u --envelope debezium --value-schema 'n INT'
    """
    from cordwood.spark.jobs.materialize import BUCKETS, MaterializeOptions, run_materialize
    from cordwood.spark.jobs.row_choice import ColumnChoice, RowChoice
    from cordwood.spark.tables.lake_table import UpkeepPolicy

    options = MaterializeOptions(
        paths=source_paths(at),
        topic=topic,
        target=lake_target(table_format, table, warehouse, properties),
        rows=RowChoice(
            value=ColumnChoice(
                encoding=_encoding("--value-format", value_format),
                schema=read_schema(value_schema),
                message=value_message,
            ),
            registry=registry,
            is_debezium=_one_of("--envelope", envelope, {"debezium": True}),
        ),
        buckets=BUCKETS if buckets is None else buckets,
        is_rebuild=rebuild,
        fails_on_data_loss=not allow_data_loss,
        is_dry_run=dry_run,
        follow_s=_duration_s("--every", every) if follow else None,
        upkeep=UpkeepPolicy(expire_ms=int(_duration_s("--expire", expire) * 1000))
        if upkeep
        else None,
    )

    def run(spark: "SparkSession | None", report: "Report") -> "JobReport":
        if not follow or dry_run:
            return run_materialize(spark, options, report)
        with stopped_by_signals() as stop:
            return run_materialize(spark, options, report, stop=stop)

    return SparkJob(run=run, needs_spark=not dry_run)


def lake_target(
    table_format: str, table: str, warehouse: str | None, properties: list[str] | None
) -> "LakeTarget":
    """The table that the options name."""
    from cordwood.spark.tables.lake_target import LakeTarget, TableFormat

    try:
        kind = TableFormat(table_format.strip().lower())
    except ValueError:
        names = ", ".join(TableFormat)
        raise ConfigError("--format", table_format, f"must be one of {names}") from None
    return LakeTarget(
        format=kind,
        table=table,
        warehouse=warehouse,
        properties=parse_pairs("--property", properties),
    )


def read_schema(text: str | None) -> str | None:
    """The schema, or the content of the file for ``@FILE``; a compiled one in base64."""
    if text is None or not text.startswith("@"):
        return text
    path = Path(text[1:])
    try:
        data = path.read_bytes()
        if path.suffix in {".desc", ".pb", ".protoset"}:
            return "base64:" + base64.b64encode(data).decode()
        return data.decode()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("schema", text, f"cannot be read: {error}") from error
