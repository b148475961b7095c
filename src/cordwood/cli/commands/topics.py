"""``cordwood topics``: lists, creates, describes, alters, trims and deletes topics."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.failures import UsageError
from cordwood.cli.options import (
    AtOption,
    ConfigOption,
    DryRunOption,
    JsonOption,
    PartitionsOption,
    TopicArgument,
    TopicsArgument,
    YesOption,
    parse_config,
)
from cordwood.cli.readable_values import counted, shown_bytes, shown_config, shown_count
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import require_confirmation, say

if TYPE_CHECKING:
    from cordwood.cli.at.backend import Backend, PartitionFacts, ReplicaFacts, TopicFacts

topics_app = typer.Typer(
    help="List, create, describe, alter, trim and delete topics.", no_args_is_help=True
)

_LIST_COLUMNS: Final = (
    Column(name="topic", is_whole=True),
    Column(name="partitions", is_number=True),
    Column(name="records", is_number=True),
    Column(name="bytes", show=shown_bytes, is_number=True),
    Column(name="config", show=shown_config),
)
_TOPIC_COLUMNS: Final = (
    Column(name="topic", is_whole=True),
    "id",
    "partitions",
    "records",
    Column(name="bytes", show=shown_bytes),
    "durability",
    "cleanup_policy",
    Column(name="config", show=shown_config),
)
_PARTITION_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    Column(name="start_offset", is_number=True),
    Column(name="end_offset", is_number=True),
    Column(name="records", is_number=True),
    Column(name="bytes", show=shown_bytes, is_number=True),
)
_ELSEWHERE_COLUMN: Final = Column(
    name="where", field="is_elsewhere", show=lambda is_it: "another broker" if is_it else "here"
)
_REPLICA_COLUMNS: Final = (
    Column(name="leader", is_number=True),
    "replicas",
    Column(name="in sync", field="in_sync"),
    "offline",
)
_CONFIG_COLUMNS: Final = (Column(name="key", is_whole=True), "value", "source")
_TRIM_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    Column(name="was", is_number=True),
    Column(name="start_offset", is_number=True),
    Column(name="deleted", show=shown_count, is_number=True),
)


@topics_app.callback()
def topics() -> None:
    """List, create, describe, alter, trim and delete topics."""


def _opened(at: str | None, *, may_be_new: bool = False) -> "Backend":
    from cordwood.cli.at.access import open_backend

    return open_backend(parse_target(at, may_be_new=may_be_new))


# --- looking ----------------------------------------------------------------------------------


@topics_app.command("list")
def list_topics(
    *,
    at: AtOption = None,
    include_internal: Annotated[
        bool, typer.Option("--all", help="Include internal topics.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """List the topics: partitions, records, bytes, and configuration.

    Records are counted by their offsets. "<=" marks a compacted topic, which may hold fewer;
    "cordwood stats" reads and counts them.

    \b
    Examples:
      cordwood topics list
      cordwood topics list --at localhost:9092 --json
    """
    with _opened(at) as backend:
        found = backend.topics(include_internal=include_internal)
    rows = [_topic_row(topic) for topic in found]
    shown = rows if as_json else [_with_shown_records(row) for row in rows]
    output_for(as_json=as_json).table(_LIST_COLUMNS, shown)
    if not found and not as_json:
        say("no topics yet; create one with `cordwood topics create NAME`")


@topics_app.command("describe")
def describe_topic(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    all_keys: Annotated[
        bool, typer.Option("--config", "-c", help="Show every configuration key and its source.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Describe a topic: partitions, offsets, bytes, durability, configuration.

    In a cluster also the leader of each partition, its replicas, those in sync, and those whose
    brokers are not alive.

    \b
    Examples:
      cordwood topics describe orders
      cordwood topics describe orders --config --at localhost:9092
    """
    with _opened(at) as backend:
        facts = backend.topic(topic)
    output = output_for(as_json=as_json)
    row = _topic_row(facts)
    is_bound = facts.is_record_bound
    partitions = [_partition_row(partition, is_bound) for partition in facts.partitions]
    settings = [
        {"key": key, "value": fact.value, "source": fact.source}
        for key, fact in sorted(facts.config.items())
    ]
    if as_json:
        extra: Row = {"partitions": partitions}
        output.facts((), row | extra | ({"all_config": settings} if all_keys else {}))
        return
    output.facts(_TOPIC_COLUMNS, _with_shown_records(row))
    typer.echo()
    has_problems = any(partition["problem"] for partition in partitions)
    has_others = any(partition["is_elsewhere"] for partition in partitions)
    columns = (
        *_PARTITION_COLUMNS,
        *(_REPLICA_COLUMNS if any("leader" in partition for partition in partitions) else ()),
        *((_ELSEWHERE_COLUMN,) if has_others else ()),
        *(("problem",) if has_problems else ()),
    )
    output.table(columns, [_with_shown_records(partition) for partition in partitions])
    if all_keys:
        typer.echo()
        output.table(_CONFIG_COLUMNS, settings)


def _topic_row(topic: "TopicFacts") -> Row:
    policy = topic.config.get("cleanup.policy")
    durability = topic.config.get("durability")
    return {
        "topic": topic.name,
        "id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": len(topic.partitions),
        "records": sum(p.record_count or 0 for p in topic.partitions),
        "is_record_bound": topic.is_record_bound,
        "bytes": _total_bytes(topic),
        "durability": None if durability is None else durability.value,
        "cleanup_policy": None if policy is None else policy.value,
        "config": topic.overrides,
    }


def _total_bytes(topic: "TopicFacts") -> int | None:
    """None if no size is known: the user may not see them."""
    known = [p.size_bytes for p in topic.partitions if p.size_bytes is not None]
    return sum(known) if known or not topic.partitions else None


def _with_shown_records(row: Row) -> Row:
    """The row with the number of records as text: ``<=1,000`` if it is an upper bound."""
    is_bound = row["is_record_bound"] and row["records"]
    return row | {"records": f"{'<=' if is_bound else ''}{shown_count(row['records'])}"}


def _partition_row(partition: "PartitionFacts", is_record_bound: bool) -> Row:
    return {
        "partition": partition.partition,
        "start_offset": partition.start_offset,
        "end_offset": partition.end_offset,
        "records": partition.record_count,
        "is_record_bound": is_record_bound,
        "bytes": partition.size_bytes,
        "is_elsewhere": partition.is_elsewhere,
        "problem": partition.problem,
        **({} if partition.replicas is None else _replica_row(partition.replicas)),
    }


def _replica_row(found: "ReplicaFacts") -> Row:
    return {
        "leader": found.leader,
        "replicas": list(found.replicas),
        "in_sync": list(found.in_sync),
        "offline": list(found.offline),
    }


# --- changing ---------------------------------------------------------------------------------


@topics_app.command("create")
def create_topics(
    topic: Annotated[list[str], typer.Argument(metavar="TOPIC", help="Names of the new topics.")],
    *,
    at: AtOption = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="Number of partitions. Default: 1, or the broker's."
        ),
    ] = None,
    replicas: Annotated[
        int | None,
        typer.Option(
            "--replication-factor",
            min=-1,
            metavar="N",
            help="Replicas of each partition, in a cluster. Default: the broker's.",
        ),
    ] = None,
    config: ConfigOption = None,
    if_missing: Annotated[
        bool, typer.Option("--if-not-exists", help="Do nothing if the topic exists.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Create topics. A data directory that does not exist is created too.

    \b
    Examples:
      cordwood topics create orders --partitions 3
      cordwood topics create accounts -c cleanup.policy=compact -c key.index=true
      cordwood topics create payments --replication-factor 3 --at broker-1:9092
    """
    from cordwood.errors import TopicExistsError

    keys = parse_config(config)
    with _opened(at, may_be_new=True) as backend:
        for name in topic:
            try:
                count = backend.create_topic(
                    name, partitions=partitions, replicas=replicas, config=keys
                )
            except TopicExistsError:
                if not if_missing:
                    raise
                row = {"topic": name, "is_created": False}
                _report(f"topic {name} already exists", row, as_json=as_json)
                continue
            row = {"topic": name, "is_created": True, "partitions": count}
            text = f"created topic {name} with {counted(count, 'partition')}"
            _report(text, row, as_json=as_json)


@topics_app.command("alter")
def alter_topic(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    partitions: Annotated[
        int | None,
        typer.Option(
            "--partitions", "-p", min=1, help="New number of partitions; it can only grow."
        ),
    ] = None,
    config: ConfigOption = None,
    unset: Annotated[
        list[str] | None,
        typer.Option(
            "--unset", "-u", metavar="KEY", help="Reset a key to its default; repeatable."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Set or reset configuration keys of a topic, or add partitions.

    \b
    Examples:
      cordwood topics alter orders -c retention.ms=7d -c segment.bytes=64MiB
      cordwood topics alter orders --unset retention.ms --partitions 6
    """
    from cordwood.errors import ConfigError

    changes: dict[str, str | None] = {**parse_config(config)}
    for key in unset or ():
        if key in changes:
            raise ConfigError("--unset", key, "is also given to --config")
        changes[key] = None
    if not changes and partitions is None:
        raise UsageError("nothing to change; pass --config, --unset or --partitions")
    with _opened(at) as backend:
        now = len(backend.topic(topic).partitions)
        if partitions is not None and partitions < now:
            raise ConfigError(
                "--partitions", partitions, f"topic {topic} has {now}; the number can only grow"
            )
        grows = partitions is not None and partitions > now
        backend.alter_topic(topic, partitions=partitions if grows else None, config=changes)
    count = partitions if grows else now
    row = {"topic": topic, "partitions": count, "config": changes}
    _report(f"altered topic {topic}", row, as_json=as_json)
    if grows:
        say("new records may go to other partitions than earlier ones with the same key")


@topics_app.command("delete")
def delete_topics(
    topic: TopicsArgument,
    *,
    at: AtOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete topics with all their records.

    \b
    Examples:
      cordwood topics delete orders
      cordwood topics delete orders payments --yes
    """
    with _opened(at) as backend:
        facts = [backend.topic(name) for name in topic]  # all exist, or none is deleted
        for found in facts:
            row = _topic_row(found)
            require_confirmation(
                f"delete topic {found.name} with {counted(row['records'], 'record')} "
                f"({shown_bytes(row['bytes'])})?",
                is_given=yes,
            )
            backend.delete_topic(found.name)
            deleted = {key: row[key] for key in ("topic", "id", "partitions", "records", "bytes")}
            _report(f"deleted topic {found.name}", deleted, as_json=as_json)


@topics_app.command("trim")
def trim_topic(
    topic: TopicArgument,
    *,
    before: Annotated[
        str,
        typer.Option(
            "--before",
            metavar="POSITION",
            help="Delete records before this offset or time: 4200, -7d (ago), 2026-11-16, end.",
        ),
    ],
    at: AtOption = None,
    partition: PartitionsOption = None,
    dry_run: DryRunOption = False,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete the records of a topic before an offset or a time.

    \b
    Examples:
      cordwood topics trim orders --before -7d --dry-run
      cordwood topics trim orders --before 4200 --partition 0 --yes
    """
    from cordwood.cli.records.log_position import parse_position
    from cordwood.cli.records.record_stream import resolve_position
    from cordwood.clock import SystemClock

    position = parse_position(before, "--before", now_ms=SystemClock().now_ms())
    with _opened(at) as backend:
        reader = backend.reader(topic, partition)
        extents = reader.extents()
        offsets = resolve_position(reader, position, extents, say)
        rows = [
            {
                "topic": topic,
                "partition": number,
                "was": extents[number].start,
                "start_offset": offset,
                "deleted": offset - extents[number].start,
            }
            for number, offset in offsets.items()
        ]
        count = sum(offset - extents[number].start for number, offset in offsets.items())
        if count and not dry_run:
            question = f"delete {counted(count, 'record')} of topic {topic}?"
            require_confirmation(question, is_given=yes)
            _note_starts(rows, backend.trim_topic(topic, _moved(offsets, rows)))
    output_for(as_json=as_json).table(_TRIM_COLUMNS, rows)
    if dry_run:
        say("dry run: nothing was deleted")


def _moved(offsets: Mapping[int, int], rows: list[Row]) -> dict[int, int]:
    return {row["partition"]: offsets[row["partition"]] for row in rows if row["deleted"]}


def _note_starts(rows: list[Row], starts: Mapping[int, int]) -> None:
    for row in rows:
        row["start_offset"] = starts.get(row["partition"], row["start_offset"])
        row["deleted"] = row["start_offset"] - row["was"]


def _report(text: str, row: Row, *, as_json: bool) -> None:
    """Report what was done: a line for people, or a JSON object."""
    if as_json:
        output_for(as_json=True).facts((), row)
    else:
        say(text)
