"""``cordwood spark ingest`` and ``replay``: write to topics from other sources or topics."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.completion import complete_topic
from cordwood.cli.failures import UsageError
from cordwood.cli.options import TopicArgument, parse_pairs
from cordwood.cli.spark.job_run import (
    SourceAtOption,
    SparkJob,
    StoreAtOption,
    job_command,
    source_paths,
    store_paths,
)
from cordwood.cli.spark.table_commands import (
    FormatOption,
    PropertyOption,
    WarehouseOption,
    lake_target,
    read_schema,
)

if TYPE_CHECKING:
    from cordwood.spark.jobs.topic_target import TopicTarget
    from cordwood.spark.tables.lake_target import LakeTarget

PartitionsOption = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        help="Create the target topic with this many partitions. Default: it must exist.",
    ),
]
PartitionerOption = Annotated[
    str | None,
    typer.Option(
        "--partitioner",
        metavar="HASH",
        help="Hash of keys: murmur2, like Java clients, or crc32, like librdkafka. "
        "Default: murmur2.",
    ),
]
PathArgument = Annotated[
    str | None, typer.Argument(metavar="PATH", help="Path of the source, for file formats.")
]
SourceOption = Annotated[
    str,
    typer.Option(
        "--from", metavar="FORMAT", help="Source format: json, csv, parquet, jdbc, cordwood, …"
    ),
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Option of the source; repeatable."),
]
SourceSchemaOption = Annotated[
    str | None,
    typer.Option(
        "--schema", metavar="SCHEMA", help="Schema of the source, or @FILE. Default: inferred."
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="SQL", help="Key of a record. Default: null.")
]
ValueOption = Annotated[
    str | None,
    typer.Option(
        "--value", metavar="SQL", help="Value of a record. Default: the whole row as JSON."
    ),
]
TimestampOption = Annotated[
    str | None,
    typer.Option("--timestamp", metavar="SQL", help="Timestamp, or milliseconds since 1970."),
]
PartitionOption = Annotated[
    str | None,
    typer.Option("--partition", metavar="SQL", help="Partition. Default: chosen by key."),
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=SQL", help="Header of a record; repeatable."),
]
IngestRunOption = Annotated[
    str | None,
    typer.Option(
        "--run-id", help="A run with the same name is written only once. Not for streams."
    ),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--checkpoint", metavar="DIR", help="Run as a stream that continues from this checkpoint."
    ),
]
IntervalOption = Annotated[
    str | None,
    typer.Option(
        "--every", metavar="INTERVAL", help="Keep running; read new data every '10 seconds'."
    ),
]
ToTopicOption = Annotated[
    str | None,
    typer.Option(
        "--to-topic", metavar="TOPIC", autocompletion=complete_topic, help="Target topic."
    ),
]
ToStoreOption = Annotated[
    str | None,
    typer.Option(
        "--to", metavar="DIR", help="Data directory of the target topic. Default: the same."
    ),
]
ToTableOption = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="Write to this new table instead.")
]
SinceOption = Annotated[
    str | None,
    typer.Option(
        "--since", metavar="TIME", help="Start time: -10m, 2026-01-31T12:00:00Z or ms since 1970."
    ),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="End time, exclusive.")
]
FromOffsetsOption = Annotated[
    str | None,
    typer.Option("--from-offsets", metavar="JSON", help='Start: {"orders": {"0": 23, "1": -2}}'),
]
ToOffsetsOption = Annotated[
    str | None,
    typer.Option("--to-offsets", metavar="JSON", help='End: {"orders": {"0": 50, "1": -1}}'),
]
WhereOption = Annotated[
    str | None,
    typer.Option("--where", metavar="SQL", help="Filter on key, value, partition, offset, …"),
]
KeepPartitionOption = Annotated[
    bool, typer.Option("--keep-partition", help="Write each record to the same partition number.")
]
ReplayRunOption = Annotated[
    str | None,
    typer.Option(
        "--run-id", help="A run with the same name is done once. Default: derived from the options."
    ),
]


@job_command
def ingest(
    topic: TopicArgument,
    *,
    source: SourceOption,
    path: PathArgument = None,
    options: OptionsOption = None,
    schema: SourceSchemaOption = None,
    key: KeyOption = None,
    value: ValueOption = None,
    timestamp: TimestampOption = None,
    partition: PartitionOption = None,
    headers: HeaderOption = None,
    partitions: PartitionsOption = None,
    partitioner: PartitionerOption = None,
    run_id: IngestRunOption = None,
    checkpoint: CheckpointOption = None,
    interval: IntervalOption = None,
    at: StoreAtOption = None,
    dry_run: bool,
) -> SparkJob:
    """Write files, tables or any other Spark source to a topic, once or as a stream.

    \b
    Examples:
      cordwood spark ingest orders /srv/exports --from json --key id
      cordwood spark ingest people --from jdbc --option url=$URL --option dbtable=people --run-id 1
    """
    from cordwood.spark.jobs.ingest import IngestColumns, IngestOptions, run_ingest

    chosen = IngestOptions(
        source=source,
        path=path,
        target=_topic_target(store_paths(at, may_be_new=True), topic, partitions, partitioner),
        options=parse_pairs("--option", options),
        schema=read_schema(schema),
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
    return SparkJob(run=lambda spark, report: run_ingest(spark, chosen, report))


@job_command
def replay(
    topic: TopicArgument,
    *,
    to_topic: ToTopicOption = None,
    to_store: ToStoreOption = None,
    partitions: PartitionsOption = None,
    partitioner: PartitionerOption = None,
    table: ToTableOption = None,
    table_format: FormatOption = "parquet",
    warehouse: WarehouseOption = None,
    properties: PropertyOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    from_offsets: FromOffsetsOption = None,
    to_offsets: ToOffsetsOption = None,
    where: WhereOption = None,
    keep_partition: KeepPartitionOption = False,
    run_id: ReplayRunOption = None,
    at: SourceAtOption = None,
    dry_run: bool,
) -> SparkJob:
    """Copy a range of records, optionally filtered, to another topic or a new table.

    \b
    Examples:
      cordwood spark replay orders --since -1d --to-topic orders-again
      cordwood spark replay orders --where "key = 'user:42'" --table /srv/tables/user-42
    """
    from cordwood.spark.jobs.replay import ReplayOptions, needs_session, run_replay

    if (to_topic is None) == (table is None):
        raise UsageError("pass either --to-topic or --table")
    into: TopicTarget | LakeTarget = (
        lake_target(table_format, table or "", warehouse, properties)
        if to_topic is None
        else _topic_target(store_paths(to_store or at), to_topic, partitions, partitioner)
    )
    bounds = {
        "startingTimestamp": since,
        "endingTimestamp": until,
        "startingOffsets": from_offsets,
        "endingOffsets": to_offsets,
    }
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
    return SparkJob(
        run=lambda spark, report: run_replay(spark, options, report),
        needs_spark=needs_session(options),
    )


def _topic_target(
    paths: tuple[str, ...], topic: str, partitions: int | None, partitioner: str | None
) -> "TopicTarget":
    from cordwood.spark.jobs.topic_target import TopicTarget
    from cordwood.spark.sink.partitioner import Partitioner

    chosen = Partitioner.MURMUR2 if partitioner is None else Partitioner.parse(partitioner)
    return TopicTarget(paths=paths, topic=topic, partitions=partitions, partitioner=chosen)
