"""``cordwood stats``: statistics over all records of a topic."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import typer

from cordwood.cli.options import AtOption, JsonOption, PartitionsOption, TopicArgument
from cordwood.cli.readable_values import NOTHING, counted, shown_bytes, shown_count, shown_time
from cordwood.cli.render import Column, Row, output_for, progress_bar
from cordwood.cli.terminal import warn

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
    as_json: JsonOption = False,
) -> None:
    """Show statistics of a topic: sizes, rates, keys, duplicates, compaction savings.

    The command reads all records, including archived segments, and changes nothing. Keys are
    counted exactly up to a million per partition; above that, from a sample chosen by hash, and
    figures begin with "about". Compaction would save every record that has a newer record with
    the same key. Rates are over the time between the oldest and the newest record. --json prints
    an object for each partition, then one for the topic.

    \b
    Examples:
      cordwood stats orders
      cordwood stats orders --json
    """
    from cordwood.cli.at.access import open_files
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
        with progress_bar(f"reading {topic}", total=size) as advance:
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
    _warn_unreadable(total.unreadable)


def _warn_unreadable(reasons: Sequence[str]) -> None:
    for text in reasons[:_TROUBLE_MAX]:
        warn(f"not counted: {text}")
    if len(reasons) > _TROUBLE_MAX:
        warn(f"and {len(reasons) - _TROUBLE_MAX} more; run `cordwood verify`")


# --- figures ----------------------------------------------------------------------------------


def figures(found: "LogStatistics") -> Row:
    """All statistics, as JSON shows them."""
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


def _size_figures(sizes: "SizeFigures") -> Row:
    average = sizes.average
    return {
        "total": sizes.bytes,
        "average": None if average is None else round(average, 2),
        "min": sizes.smallest,
        "max": sizes.largest,
    }


# --- words ------------------------------------------------------------------------------------


def _in_words(topic: str, partitions: int, found: "LogStatistics") -> Row:
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


def _records_in_words(facts: Row) -> str:
    keyless = facts["keyless"]
    return f"{facts['records']:,}" + (f", {keyless:,} without a key" if keyless else "")


def _batches_in_words(facts: Row) -> str:
    if not facts["batches"]:
        return "0"
    size = shown_bytes(round(facts["batch_bytes_average"]))
    records = facts["batch_records_average"] or 0
    control = facts["control_batches"]
    markers = f", including {counted(control, 'transaction marker')}" if control else ""
    return f"{facts['batches']:,}, average {size} and {records:,.1f} records{markers}"


def _compression_in_words(found: "LogStatistics", facts: Row) -> str:
    if not found.compressed_batches:
        return "none"
    share = found.compressed_batches / found.batches
    of = "" if share == 1 else f"; {_shown_share(share)} of batches are compressed"
    raw = shown_bytes(facts["raw_bytes"])
    return f"{facts['compression_ratio']:.2f} : 1, {raw} uncompressed{of}"


def _times_in_words(facts: Row) -> str:
    first, last = facts["first_timestamp_ms"], facts["last_timestamp_ms"]
    if first is None:
        return NOTHING
    return f"{shown_time(first)[:19]} to {shown_time(last)[:19]}"


def _rate_in_words(facts: Row) -> str:
    if facts["records_per_second"] is None:
        return NOTHING
    size = shown_bytes(round(facts["bytes_per_second"]))
    return f"{_short_number(facts['records_per_second'])} records/s, {size}/s"


def _short_number(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _size_in_words(sizes: Row) -> str:
    if sizes["average"] is None:
        return NOTHING
    return f"average {sizes['average']:,.1f} B, {sizes['min']:,} to {sizes['max']:,} B"


def _about(facts: Row) -> str:
    return "about " if facts["keys_sampled_one_in"] > 1 else ""


def _keys_in_words(facts: Row) -> str:
    one_in = facts["keys_sampled_one_in"]
    sampled = f" (from a sample of one in {one_in:,})" if one_in > 1 else ""
    return f"{_about(facts)}{facts['keys']:,}{sampled}"


def _duplicates_in_words(facts: Row) -> str:
    if facts["duplicate_ratio"] is None:
        return NOTHING
    share = _shown_share(facts["duplicate_ratio"])
    return f"{_about(facts)}{share} of records with a key repeat an earlier key"


def _tombstones_in_words(facts: Row) -> str:
    deleted = facts["deleted_keys"]
    return f"{facts['tombstones']:,}" + (
        f"; {_about(facts)}{counted(deleted, 'deleted key')}" if deleted else ""
    )


def _compaction_in_words(facts: Row) -> str:
    if facts["compaction_saves_ratio"] is None:
        return NOTHING
    return (
        f"would save {_about(facts)}{counted(facts['compaction_saves_records'], 'record')}, "
        f"about {shown_bytes(facts['compaction_saves_bytes'])} "
        f"({_shown_share(facts['compaction_saves_ratio'])})"
    )


def _shown(row: Row) -> Row:
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
