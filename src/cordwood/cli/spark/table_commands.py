"""``cordwood spark export`` and ``materialize``: write topics to tables."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.options import TopicArgument, TopicsArgument, parse_pairs
from cordwood.cli.spark.job_run import (
    SourceAtOption,
    SparkJob,
    job_command,
    source_paths,
)
from cordwood.errors import ConfigError

if TYPE_CHECKING:
    from cordwood.spark.jobs.tables.lake_target import LakeTarget

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
        help="Fields of JSON values: 'id BIGINT, name STRING', or @FILE.",
    ),
]
LossOption = Annotated[
    bool,
    typer.Option(
        "--allow-data-loss", help="Continue if records were deleted before they were read."
    ),
]


@job_command
def export(
    topics: TopicsArgument,
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
            help="Fields of JSON values: 'id BIGINT, name STRING', @FILE, or infer.",
        ),
    ] = None,
    commit_records: Annotated[
        int | None,
        typer.Option("--commit-records", help="Records per commit. Default: 100 million."),
    ] = None,
    allow_data_loss: LossOption = False,
    at: SourceAtOption = None,
    dry_run: bool,
) -> SparkJob:
    """Export records to a table, and update it on later runs. Each offset is in the table once.

    Values that do not fit the schema go to TABLE_rejected, with the reason.

    \b
    Examples:
      cordwood spark export orders --table /srv/tables/orders
      cordwood spark export orders --table sales.orders --format iceberg --warehouse /srv/lake
    """
    from cordwood.spark.jobs.export import COMMIT_RECORDS, ExportOptions, run_export

    options = ExportOptions(
        paths=source_paths(at),
        topics=tuple(topics),
        target=lake_target(table_format, table, warehouse, properties),
        value_schema=read_schema(value_schema),
        commit_records=COMMIT_RECORDS if commit_records is None else commit_records,
        fails_on_data_loss=not allow_data_loss,
        is_dry_run=dry_run,
    )
    return SparkJob(
        run=lambda spark, report: run_export(spark, options, report), needs_spark=not dry_run
    )


@job_command
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
        typer.Option(
            "--buckets", help="Parts of a new table; each is rewritten separately. Default: 16."
        ),
    ] = None,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="Start again from the beginning of the log.")
    ] = False,
    allow_data_loss: LossOption = False,
    at: SourceAtOption = None,
    dry_run: bool,
) -> SparkJob:
    """Write the current value of each key of a topic to a table; tombstones delete rows.

    \b
    Examples:
      cordwood spark materialize accounts --table /srv/tables/accounts --format delta
    """
    from cordwood.spark.jobs.materialize import BUCKETS, MaterializeOptions, run_materialize

    options = MaterializeOptions(
        paths=source_paths(at),
        topic=topic,
        target=lake_target(table_format, table, warehouse, properties),
        value_schema=read_schema(value_schema),
        buckets=BUCKETS if buckets is None else buckets,
        is_rebuild=rebuild,
        fails_on_data_loss=not allow_data_loss,
        is_dry_run=dry_run,
    )
    return SparkJob(
        run=lambda spark, report: run_materialize(spark, options, report), needs_spark=not dry_run
    )


def lake_target(
    table_format: str, table: str, warehouse: str | None, properties: list[str] | None
) -> "LakeTarget":
    """The table that the options name."""
    from cordwood.spark.jobs.tables.lake_target import LakeTarget, TableFormat

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
    """The schema, or the content of the file for ``@FILE``."""
    if text is None or not text.startswith("@"):
        return text
    try:
        return Path(text[1:]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError("schema", text, f"cannot be read: {error}") from error
