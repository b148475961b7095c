"""``cordwood spark`` ingest and replay: records into topics, from files or other topics."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.completion_names import TopicArgument, complete_topic
from cordwood.cli.spark.spark_run import (
    ConfOption,
    DryRunOption,
    JsonOption,
    MasterOption,
    SourceAtOption,
    StoreAtOption,
    parse_pairs,
    run_job,
    source_paths,
    store_paths,
)
from cordwood.cli.spark.spark_transfer import (
    FormatOption,
    PropertyOption,
    WarehouseOption,
    lake_target,
    read_schema,
)
from cordwood.cli.usage_error import UsageError

if TYPE_CHECKING:
    from cordwood.spark.jobs.tables.lake_target import LakeTarget
    from cordwood.spark.jobs.topic_target import TopicTarget

PartitionsOption = Annotated[
    int | None,
    typer.Option("--partitions", help="Create the topic written to with so many; else it exists."),
]
PartitionerOption = Annotated[
    str | None,
    typer.Option(
        "--partitioner",
        metavar="HASH",
        help="Of keys: murmur2, as Java's clients, or crc32, as librdkafka. Default: murmur2.",
    ),
]
PathArgument = Annotated[
    str | None, typer.Argument(metavar="PATH", help="Files, for formats of files.")
]
SourceOption = Annotated[
    str, typer.Option("--from", metavar="FORMAT", help="json, csv, parquet, jdbc, cordwood, …")
]
OptionsOption = Annotated[
    list[str] | None,
    typer.Option("--option", metavar="KEY=VALUE", help="Of the source; repeatable."),
]
SourceSchemaOption = Annotated[
    str | None,
    typer.Option("--schema", metavar="SCHEMA", help="Of the source; else inferred. @FILE."),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="SQL", help="The key; else there is none.")
]
ValueOption = Annotated[
    str | None, typer.Option("--value", metavar="SQL", help="Else the whole row, as JSON.")
]
TimestampOption = Annotated[
    str | None,
    typer.Option("--timestamp", metavar="SQL", help="A time, or milliseconds since 1970."),
]
PartitionOption = Annotated[
    str | None, typer.Option("--partition", metavar="SQL", help="Else the key decides.")
]
HeaderOption = Annotated[
    list[str] | None,
    typer.Option("--header", metavar="NAME=SQL", help="A header; repeatable."),
]
IngestRunOption = Annotated[
    str | None, typer.Option("--run-id", help="Of a name one run is written. Not for streams.")
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option("--checkpoint", metavar="DIR", help="As a stream, which goes on from here."),
]
IntervalOption = Annotated[
    str | None,
    typer.Option("--every", metavar="INTERVAL", help="Do not end; look every '10 seconds'."),
]
ToTopicOption = Annotated[
    str | None,
    typer.Option(
        "--to-topic", metavar="TOPIC", autocompletion=complete_topic, help="Into this topic."
    ),
]
ToStoreOption = Annotated[
    str | None,
    typer.Option("--to", metavar="DIR", help="The store of that topic; else the same."),
]
ToTableOption = Annotated[
    str | None, typer.Option("--table", metavar="TABLE", help="Into a new table, instead.")
]
SinceOption = Annotated[
    str | None,
    typer.Option("--since", metavar="TIME", help="-10m, 2026-01-31T12:00:00Z or milliseconds."),
]
UntilOption = Annotated[
    str | None, typer.Option("--until", metavar="TIME", help="Up to, and without, this time.")
]
FromOffsetsOption = Annotated[
    str | None,
    typer.Option("--from-offsets", metavar="JSON", help='{"orders": {"0": 23, "1": -2}}'),
]
ToOffsetsOption = Annotated[
    str | None,
    typer.Option("--to-offsets", metavar="JSON", help='{"orders": {"0": 50, "1": -1}}'),
]
WhereOption = Annotated[
    str | None,
    typer.Option("--where", metavar="SQL", help="Over key, value, partition, offset, …"),
]
KeepPartitionOption = Annotated[
    bool, typer.Option("--keep-partition", help="To the partition they came from.")
]
ReplayRunOption = Annotated[
    str | None, typer.Option("--run-id", help="Done once per name; else by what is asked for.")
]


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
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write what Spark can read to a topic: files, tables, another topic; once, or as it comes.

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
    master: MasterOption = None,
    conf: ConfOption = None,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write a part of a topic again, filtered, to another topic or a new table.

    \b
    Examples:
      cordwood spark replay orders --since -1d --to-topic orders-again
      cordwood spark replay orders --where "key = 'user:42'" --table /srv/tables/user-42
    """
    from cordwood.spark.jobs.replay import ReplayOptions, run_replay

    if (to_topic is None) == (table is None):
        raise UsageError("give either --to-topic or --table")
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
    run_job(
        lambda spark, report: run_replay(spark, options, report),
        name="replay",
        master=master,
        conf=conf,
        as_json=as_json,
        needs_spark=not dry_run,
    )


def _topic_target(
    paths: tuple[str, ...], topic: str, partitions: int | None, partitioner: str | None
) -> "TopicTarget":
    from cordwood.spark.jobs.topic_target import TopicTarget
    from cordwood.spark.sink.partitioner import Partitioner

    chosen = Partitioner.MURMUR2 if partitioner is None else Partitioner.parse(partitioner)
    return TopicTarget(paths=paths, topic=topic, partitions=partitions, partitioner=chosen)
