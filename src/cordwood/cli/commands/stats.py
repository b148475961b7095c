"""``cordwood stats``: what is in a topic, counted over all of its records."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.at.target import AtOption
from cordwood.cli.completion_names import PartitionsOption, TopicArgument
from cordwood.cli.readable_values import NOTHING, shown_bytes, shown_count, shown_time
from cordwood.cli.render import Column, output_for, progress_bar

if TYPE_CHECKING:
    from cordwood.log.inspection.log_statistics import LogStatistics, SizeFigures

_TROUBLE_MAX: Final = 10


def _shown_share(share: float | None) -> str:
    return NOTHING if share is None else f"{100 * share:.1f} %"


_FACTS: Final = (
    "topic",
    "partitions",
    "records",
    "bytes",
    "batches",
    "compression",
    "times",
    "rate",
    "key size",
    "value size",
    "keys",
    "duplicates",
    "tombstones",
    "compaction",
)
_PARTITION_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    Column(name="records", show=shown_count, is_number=True),
    Column(name="bytes", show=shown_bytes, is_number=True),
    Column(name="keys", is_number=True),
    Column(name="duplicates", show=_shown_share, is_number=True),
    Column(name="tombstones", show=shown_count, is_number=True),
    Column(name="saves", is_number=True),
    Column(name="records/s", is_number=True),
)


def stats(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    partition: PartitionsOption = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each partition, and for all.")
    ] = False,
) -> None:
    """Count what is in a topic: sizes, rates, keys, duplicates, what compaction would save.

    Everything that can be read is read, archived segments too, and nothing is changed. Keys are
    counted exactly up to a million in a partition; beyond that a share of them is, chosen by
    hash, and figures begin with "about". What compaction would save is the records that have a
    newer one with the same key, wherever they lie. Rates are over the time between the oldest
    and the newest record.

    \b
    Examples:
      cordwood stats orders
      cordwood stats orders --json
    """
    from cordwood.cli.at.opened_files import open_files
    from cordwood.log.compaction.key_sample import KeySample
    from cordwood.log.inspection.log_statistics import LogStatistics, survey_log

    found: dict[int, LogStatistics] = {}
    total, all_keys = LogStatistics(), KeySample()
    with open_files(at, [topic]) as store:
        described = store.topic(topic)
        logs = (
            described.partitions
            if partition is None
            else [described.partition(number) for number in dict.fromkeys(partition)]
        )
        size = sum(log.size_bytes for log in logs)
        with progress_bar(f"counting {topic}", total=size) as advance:
            for log in logs:
                sample = KeySample()
                found[log.partition] = one = survey_log(log, sample, advance)
                total.add(one)
                all_keys.merge(sample)
    total.keys, total.sampled_one_in = all_keys.keys, all_keys.sampled_one_in
    _show(topic, found, total, as_json=as_json)


def _show(
    topic: str, found: "dict[int, LogStatistics]", total: "LogStatistics", *, as_json: bool
) -> None:
    output = output_for(as_json=as_json)
    rows = [{"topic": topic, "partition": number, **figures(one)} for number, one in found.items()]
    whole = {"topic": topic, "partition": None, "partitions": len(found), **figures(total)}
    if as_json:
        output.table((), rows)
        output.facts((), whole)
    else:
        output.facts(_FACTS, _in_words(topic, len(found), total))
        if len(found) > 1:
            typer.echo()
            output.table(_PARTITION_COLUMNS, [_shown(row) for row in rows])
    _warn(total.unreadable)


def _warn(unreadable: Sequence[str]) -> None:
    for text in unreadable[:_TROUBLE_MAX]:
        typer.secho(f"cordwood: not counted: {text}", err=True, fg="yellow")
    if len(unreadable) > _TROUBLE_MAX:
        more = len(unreadable) - _TROUBLE_MAX
        typer.secho(f"cordwood: and {more} more; see cordwood verify", err=True, fg="yellow")


# --- figures ----------------------------------------------------------------------------------


def figures(found: "LogStatistics") -> dict[str, Any]:
    """Everything there is to say, as JSON has it."""
    span_ms = _span_ms(found)
    keyed = found.key_sizes.count
    share = found.superseded_share
    return {
        "records": found.records,
        "bytes": found.bytes,
        "raw_bytes": found.raw_bytes,
        "batches": found.batches,
        "control_batches": found.control_batches,
        "batch_bytes_average": _ratio(found.bytes, found.batches),
        "batch_records_average": _ratio(found.records, found.batches - found.control_batches),
        "compression_ratio": _ratio(found.raw_bytes, found.bytes),
        "first_timestamp_ms": found.first_timestamp_ms,
        "last_timestamp_ms": found.last_timestamp_ms,
        "records_per_second": _ratio(found.records * 1000, span_ms),
        "bytes_per_second": _ratio(found.bytes * 1000, span_ms),
        "key_bytes": _size_figures(found.key_sizes),
        "value_bytes": _size_figures(found.value_sizes),
        "keyless": found.records - keyed,
        "keys": found.keys,
        "keys_sampled_one_in": found.sampled_one_in,
        "duplicate_ratio": _ratio(found.superseded, keyed),
        "tombstones": found.tombstones,
        "deleted_keys": found.newest_tombstones,
        "compaction_saves_records": found.superseded,
        "compaction_saves_ratio": None if share is None else round(share, 4),
        "compaction_saves_bytes": None if share is None else round(share * found.bytes),
        "unreadable": len(found.unreadable),
    }


def _span_ms(found: "LogStatistics") -> int:
    if found.first_timestamp_ms is None or found.last_timestamp_ms is None:
        return 0
    return found.last_timestamp_ms - found.first_timestamp_ms


def _ratio(count: float, of: float) -> float | None:
    return round(count / of, 4) if of else None


def _size_figures(sizes: "SizeFigures") -> dict[str, Any]:
    average = sizes.average
    return {
        "total": sizes.bytes,
        "average": None if average is None else round(average, 2),
        "min": sizes.smallest,
        "max": sizes.largest,
    }


# --- words ------------------------------------------------------------------------------------


def _in_words(topic: str, partitions: int, found: "LogStatistics") -> dict[str, Any]:
    facts = figures(found)
    return {
        "topic": topic,
        "partitions": partitions,
        "records": _records_in_words(facts),
        "bytes": shown_bytes(facts["bytes"]),
        "batches": _batches_in_words(facts),
        "compression": _compression_in_words(found, facts),
        "times": _times_in_words(facts),
        "rate": _rate_in_words(facts),
        "key size": _size_in_words(facts["key_bytes"]),
        "value size": _size_in_words(facts["value_bytes"]),
        "keys": _keys_in_words(facts),
        "duplicates": _duplicates_in_words(facts),
        "tombstones": _tombstones_in_words(facts),
        "compaction": _compaction_in_words(facts),
    }


def _records_in_words(facts: dict[str, Any]) -> str:
    keyless = facts["keyless"]
    return f"{facts['records']:,}" + (f", {keyless:,} of them without a key" if keyless else "")


def _batches_in_words(facts: dict[str, Any]) -> str:
    if not facts["batches"]:
        return "0"
    size = shown_bytes(round(facts["batch_bytes_average"]))
    records = facts["batch_records_average"] or 0
    control = facts["control_batches"]
    markers = f", {control:,} of them transaction markers" if control else ""
    return f"{facts['batches']:,} of {size} and {records:,.1f} records on average{markers}"


def _compression_in_words(found: "LogStatistics", facts: dict[str, Any]) -> str:
    if not found.compressed_batches:
        return "none"
    share = found.compressed_batches / found.batches
    of = "" if share == 1 else f"; {_shown_share(share)} of batches are compressed"
    return f"{facts['compression_ratio']:.2f} : 1, {shown_bytes(facts['raw_bytes'])} without{of}"


def _times_in_words(facts: dict[str, Any]) -> str:
    first, last = facts["first_timestamp_ms"], facts["last_timestamp_ms"]
    if first is None:
        return NOTHING
    return f"{shown_time(first)[:19]} to {shown_time(last)[:19]}"


def _rate_in_words(facts: dict[str, Any]) -> str:
    if facts["records_per_second"] is None:
        return NOTHING
    size = shown_bytes(round(facts["bytes_per_second"]))
    return f"{_short_number(facts['records_per_second'])} records/s, {size}/s"


def _short_number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _size_in_words(sizes: dict[str, Any]) -> str:
    if sizes["average"] is None:
        return NOTHING
    average = f"{sizes['average']:,.1f} B on average"
    return f"{average}, {sizes['min']:,} to {sizes['max']:,} B"


def _about(facts: dict[str, Any]) -> str:
    return "about " if facts["keys_sampled_one_in"] > 1 else ""


def _keys_in_words(facts: dict[str, Any]) -> str:
    one_in = facts["keys_sampled_one_in"]
    sampled = f" (one in {one_in:,} was counted)" if one_in > 1 else ""
    return f"{_about(facts)}{facts['keys']:,}{sampled}"


def _duplicates_in_words(facts: dict[str, Any]) -> str:
    if facts["duplicate_ratio"] is None:
        return NOTHING
    share = _shown_share(facts["duplicate_ratio"])
    return f"{_about(facts)}{share} of records with a key repeat one"


def _tombstones_in_words(facts: dict[str, Any]) -> str:
    deleted = facts["deleted_keys"]
    return f"{facts['tombstones']:,}" + (
        f"; {_about(facts)}{deleted:,} keys are deleted" if deleted else ""
    )


def _compaction_in_words(facts: dict[str, Any]) -> str:
    if facts["compaction_saves_ratio"] is None:
        return NOTHING
    return (
        f"would save {_about(facts)}{facts['compaction_saves_records']:,} records, "
        f"about {shown_bytes(facts['compaction_saves_bytes'])} "
        f"({_shown_share(facts['compaction_saves_ratio'])})"
    )


def _shown(row: dict[str, Any]) -> dict[str, Any]:
    rate = row["records_per_second"]
    return {
        "partition": row["partition"],
        "records": row["records"],
        "bytes": row["bytes"],
        "keys": f"{'~' if row['keys_sampled_one_in'] > 1 else ''}{row['keys']:,}",
        "duplicates": row["duplicate_ratio"],
        "tombstones": row["tombstones"],
        "saves": shown_bytes(row["compaction_saves_bytes"]),
        "records/s": NOTHING if rate is None else _short_number(rate),
    }
