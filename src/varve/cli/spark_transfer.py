"""``varve spark`` export, materialize, ingest and replay: records to and from elsewhere."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from varve.cli.spark_run import (
    ConfOption,
    DryRunOption,
    JsonOption,
    MasterOption,
    parse_pairs,
    run_job,
    source_paths,
    store_paths,
)
from varve.cli.target import AtOption
from varve.cli.topic_names import complete_topic
from varve.cli.usage_error import UsageError
from varve.errors import ConfigError

if TYPE_CHECKING:
    from varve.spark.jobs.lake_target import LakeTarget

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic)]
FormatOption = Annotated[
    str, typer.Option("--format", metavar="FORMAT", help="parquet, delta or iceberg.")
]
TableOption = Annotated[
    str,
    typer.Option(
        "--table",
        metavar="TABLE",
        help="A directory or URL; for iceberg a namespace and a name, as in lake.orders.",
    ),
]
WarehouseOption = Annotated[
    str | None,
    typer.Option("--warehouse", metavar="DIR|URL", help="Where an Iceberg catalog has its tables."),
]
PropertyOption = Annotated[
    list[str] | None,
    typer.Option(
        "--property",
        metavar="KEY=VALUE",
        help="Of the Iceberg catalog (uri, s3.endpoint, …) or Delta's object store; repeatable.",
    ),
]
SchemaOption = Annotated[
    str | None,
    typer.Option(
        "--value-schema",
        metavar="SCHEMA",
        help="Values are JSON: their fields, as in 'id BIGINT, name STRING', or @FILE.",
    ),
]
LossOption = Annotated[
    bool,
    typer.Option("--allow-data-loss", help="Go on where records were deleted before they came."),
]


def export(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...", autocompletion=complete_topic)],
    *,
    table: TableOption,
    table_format: FormatOption = "parquet",
    warehouse: WarehouseOption = None,
    properties: PropertyOption = None,
    value_schema: Annotated[
        str | None,
        typer.Option(
            "--value-schema",
            metavar="SCHEMA",
            help="Values are JSON: 'id BIGINT, name STRING', @FILE, or infer.",
        ),
    ] = None,
    commit_records: Annotated[
        int | None,
        typer.Option("--commit-records", help="Commit after each so many; else 100 million."),
    ] = None,
    allow_data_loss: LossOption = False,
    at: AtOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Bring a table of topics' records up to date; each offset is in it once.

    Values that do not fit the schema go to TABLE_rejected, with the reason.
    """
    from varve.spark.jobs.export import COMMIT_RECORDS, ExportOptions, run_export

    options = ExportOptions(
        paths=source_paths(at),
        topics=tuple(topics),
        target=_target(table_format, table, warehouse, properties),
        value_schema=_read_schema(value_schema),
        commit_records=COMMIT_RECORDS if commit_records is None else commit_records,
        fails_on_data_loss=not allow_data_loss,
        is_dry_run=dry_run,
    )
    run_job(
        lambda spark, report: run_export(spark, options, report),
        name="export",
        master=master,
        conf=conf,
        as_json=as_json,
        needs_spark=not dry_run,
    )


def materialize(
    topic: TopicArgument,
    *,
    table: TableOption,
    table_format: FormatOption = "parquet",
    warehouse: WarehouseOption = None,
    properties: PropertyOption = None,
    value_schema: SchemaOption = None,
    buckets: Annotated[
        int | None,
        typer.Option("--buckets", help="Parts of a new table, which are rewritten alone; else 16."),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="From the beginning of the log.")
    ] = False,
    allow_data_loss: LossOption = False,
    at: AtOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Fold a changelog to a table with the current value of each key; tombstones delete."""
    from varve.spark.jobs.materialize import BUCKETS, MaterializeOptions, run_materialize

    options = MaterializeOptions(
        paths=source_paths(at),
        topic=topic,
        target=_target(table_format, table, warehouse, properties),
        value_schema=_read_schema(value_schema),
        buckets=BUCKETS if buckets is None else buckets,
        is_rebuild=rebuild,
        fails_on_data_loss=not allow_data_loss,
        is_dry_run=dry_run,
    )
    run_job(
        lambda spark, report: run_materialize(spark, options, report),
        name="materialize",
        master=master,
        conf=conf,
        as_json=as_json,
        needs_spark=not dry_run,
    )


def ingest(
    topic: TopicArgument,
    *,
    source: Annotated[
        str, typer.Option("--from", metavar="FORMAT", help="json, csv, parquet, jdbc, varve, …")
    ],
    path: Annotated[
        str | None, typer.Argument(metavar="[PATH]", help="Files, for formats of files.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--option", metavar="KEY=VALUE", help="Of the source; repeatable."),
    ] = None,
    schema: Annotated[
        str | None,
        typer.Option("--schema", metavar="SCHEMA", help="Of the source; else inferred. @FILE."),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", metavar="SQL")] = None,
    value: Annotated[
        str | None, typer.Option("--value", metavar="SQL", help="Else the whole row, as JSON.")
    ] = None,
    timestamp: Annotated[
        str | None,
        typer.Option("--timestamp", metavar="SQL", help="A time, or milliseconds since 1970."),
    ] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="SQL", help="Else the key decides.")
    ] = None,
    headers: Annotated[
        list[str] | None,
        typer.Option("--header", metavar="NAME=SQL", help="A header; repeatable."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="Create the topic with so many.")
    ] = None,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="Of a name one run is written. Not for streams.")
    ] = None,
    checkpoint: Annotated[
        Path | None,
        typer.Option("--checkpoint", metavar="DIR", help="As a stream, which goes on from here."),
    ] = None,
    interval: Annotated[
        str | None,
        typer.Option("--every", metavar="INTERVAL", help="Do not end; look every '10 seconds'."),
    ] = None,
    at: AtOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write what Spark can read to a topic: files, tables, another topic; once, or as it comes."""
    from varve.spark.jobs.ingest import IngestColumns, IngestOptions, run_ingest
    from varve.spark.jobs.topic_target import TopicTarget

    chosen = IngestOptions(
        source=source,
        path=path,
        target=TopicTarget(
            paths=store_paths(at, may_be_new=True), topic=topic, partitions=partitions
        ),
        options=parse_pairs("--option", options),
        schema=_read_schema(schema),
        columns=IngestColumns(
            key=key,
            value=value,
            timestamp=timestamp,
            partition=partition,
            headers=parse_pairs("--header", headers),
        ),
        run_id=run_id,
        checkpoint=None if checkpoint is None else str(checkpoint.absolute()),
        interval=interval,
        is_dry_run=dry_run,
    )

    run_job(
        lambda spark, report: run_ingest(spark, chosen, report),
        name="ingest",
        master=master,
        conf=conf,
        as_json=as_json,
    )


def replay(
    topic: TopicArgument,
    *,
    to_topic: Annotated[
        str | None, typer.Option("--to-topic", metavar="TOPIC", autocompletion=complete_topic)
    ] = None,
    to_store: Annotated[
        str | None,
        typer.Option("--to", metavar="DIR", help="The store of that topic; else the same."),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option("--partitions", help="Create that topic with so many.")
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="TABLE", help="A new table, instead.")
    ] = None,
    table_format: FormatOption = "parquet",
    warehouse: WarehouseOption = None,
    properties: PropertyOption = None,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="TIME", help="-10m, 2026-01-31T12:00:00Z or milliseconds."),
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="TIME")] = None,
    from_offsets: Annotated[
        str | None,
        typer.Option("--from-offsets", metavar="JSON", help='{"orders": {"0": 23, "1": -2}}'),
    ] = None,
    to_offsets: Annotated[str | None, typer.Option("--to-offsets", metavar="JSON")] = None,
    where: Annotated[
        str | None,
        typer.Option("--where", metavar="SQL", help="Over key, value, partition, offset, …"),
    ] = None,
    keep_partition: Annotated[
        bool, typer.Option("--keep-partition", help="To the partition they came from.")
    ] = False,
    run_id: Annotated[
        str | None, typer.Option("--run-id", help="Done once per name; else by what is asked for.")
    ] = None,
    at: AtOption = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a part of a topic again, filtered, to another topic or a new table."""
    from varve.spark.jobs.lake_target import LakeTarget
    from varve.spark.jobs.replay import ReplayOptions, run_replay
    from varve.spark.jobs.topic_target import TopicTarget

    if (to_topic is None) == (table is None):
        raise UsageError("give either --to-topic or --table")
    bounds = {
        "startingTimestamp": since,
        "endingTimestamp": until,
        "startingOffsets": from_offsets,
        "endingOffsets": to_offsets,
    }
    if to_topic is not None:
        into: TopicTarget | LakeTarget = TopicTarget(
            paths=store_paths(to_store or at), topic=to_topic, partitions=partitions
        )
    else:
        into = _target(table_format, table or "", warehouse, properties)
    options = ReplayOptions(
        paths=source_paths(at),
        topic=topic,
        into=into,
        bounds={name: text for name, text in bounds.items() if text is not None},
        where=where,
        keeps_partition=keep_partition,
        run_id=run_id,
        is_dry_run=dry_run,
    )
    run_job(
        lambda spark, report: run_replay(spark, options, report),
        name="replay",
        master=master,
        conf=conf,
        as_json=as_json,
        needs_spark=not dry_run,
    )


def _target(
    table_format: str, table: str, warehouse: str | None, properties: list[str] | None
) -> "LakeTarget":
    from varve.spark.jobs.lake_target import LakeTarget, TableFormat

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


def _read_schema(text: str | None) -> str | None:
    """The schema, or what is in the file that an @ stands before."""
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("schema", text, f"cannot be read: {error}") from error
