"""``cordwood segments``: shows the segments of a topic, and when each expires."""

import os
import shutil
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

import typer

from cordwood.cli.commands.segment_timeline import LEGEND, Timeline
from cordwood.cli.options import AtOption, JsonOption, PartitionsOption, TopicArgument
from cordwood.cli.readable_values import NOTHING, shown_bytes, shown_duration, shown_time
from cordwood.cli.render import Column, Row, output_for

if TYPE_CHECKING:
    from cordwood.log.beside.read_only_log import ReadOnlyLog
    from cordwood.log.reading.segment_info import SegmentInfo
    from cordwood.log.rules.retention import SegmentDecision
    from cordwood.log.topics.topic import Topic
    from cordwood.quantities import TimestampMs

_TRIES: Final = 5  # while segments are deleted or compacted at the same time
_WIDE: Final = 100  # columns of a terminal that fits the whole table


def segments(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    partition: PartitionsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the segments of a topic: offsets, bytes, times, state, and when each expires.

    The list includes archived segments. "expires" shows when retention deletes a segment and by
    which rule; --json and "cordwood retention explain" give the full reason. "<=" marks a number of
    records that is an upper bound, because compaction may have removed some. Below the table, a
    line for each partition shows its segments over time.

    \b
    Examples:
      cordwood segments orders
      cordwood segments orders -p 0 --json
    """
    from cordwood.cli.at.access import open_files
    from cordwood.clock import SystemClock

    now_ms = SystemClock().now_ms()
    with open_files(at, [topic]) as store:
        found = store.topic(topic)
        logs = (
            found.partitions
            if partition is None
            else [found.partition(number) for number in dict.fromkeys(partition)]
        )
        rows = [row for log in logs for row in segment_rows(found, log, now_ms)]
    if as_json:
        output_for(as_json=True).table((), rows)
        return
    _show(rows, now_ms)


# --- values -----------------------------------------------------------------------------------


def segment_rows(
    topic: "Topic[ReadOnlyLog]", log: "ReadOnlyLog", now_ms: "TimestampMs"
) -> list[Row]:
    """A row for each segment of a log, oldest first."""
    infos = _infos(log)
    plan = log.upkeep.plan_retention(topic.config, now_ms)
    decisions = {decision.base_offset: decision for decision in plan.segments}
    cleaned = _cleaned_up_to(log) if topic.config.is_compacted else None
    archived = log.archived_up_to
    allows_gaps = log.source.allows_gaps
    rows: list[Row] = []
    for info in infos:
        is_clean = cleaned is not None and info.next_offset <= cleaned
        state = "compacted" if info.state == "sealed" and is_clean else info.state
        rows.append(
            {
                "topic": topic.name,
                "partition": log.partition,
                "base_offset": info.base_offset,
                "next_offset": info.next_offset,
                "records": info.next_offset - info.base_offset if info.size_bytes else 0,
                "is_record_bound": allows_gaps and state != "active" and info.size_bytes > 0,
                "bytes": info.size_bytes,
                "first_timestamp_ms": info.first_timestamp_ms,
                "last_timestamp_ms": info.last_timestamp_ms,
                "state": state,
                "has_archived_copy": archived is not None
                and info.base_offset < info.next_offset <= archived,
                **_retention_fields(decisions.get(info.base_offset)),
                "path": info.path,
            }
        )
    return rows


def _infos(log: "ReadOnlyLog") -> "list[SegmentInfo]":
    """The segments; tries again if retention or compaction removed one meanwhile."""
    for _ in range(_TRIES):
        try:
            return log.segments()
        except FileNotFoundError:
            log.source.refresh()
    return log.segments()


def _cleaned_up_to(log: "ReadOnlyLog") -> int | None:
    from cordwood.log.topics.log_directory import read_checkpoints
    from cordwood.storage.files import RealFileSystem

    checkpoints = read_checkpoints(RealFileSystem(), os.path.dirname(log.directory))
    return checkpoints.cleaned.get((log.topic, log.partition))


def _retention_fields(decision: "SegmentDecision | None") -> Row:
    """What retention does with a segment; all None for a segment newer than the plan."""
    return {
        "verdict": None if decision is None else str(decision.verdict),
        "rule": None if decision is None or decision.rule is None else str(decision.rule),
        "expires_ms": None if decision is None else decision.expires_ms,
        "reason": None if decision is None else decision.reason,
    }


# --- for people -------------------------------------------------------------------------------


def _show(rows: Sequence[Row], now_ms: int) -> None:
    """Print a table and a timeline; a narrow terminal gets fewer columns."""
    width = shutil.get_terminal_size().columns
    is_narrow = sys.stdout.isatty() and width < _WIDE
    columns: list[str | Column] = [
        Column(name="p" if is_narrow else "partition", is_number=True),
        Column(name="base", is_number=True),
        Column(name="next", is_number=True),
        Column(name="records", is_number=True),
        Column(name="bytes", is_number=True),
        "first",
        "last",
        "state",
        "expires",
    ]
    if is_narrow:
        del columns[2]  # it is the base offset of the next segment
    show_time = _short_times(rows, now_ms) if sys.stdout.isatty() else shown_time
    shown = [_shown_row(row, show_time, now_ms) for row in rows]
    output_for(as_json=False).table(columns, shown)
    timeline = Timeline(rows, columns=width)
    if not timeline.has_times:
        return
    typer.echo()
    for partition in dict.fromkeys(row["partition"] for row in rows):
        typer.echo(timeline.line(partition, is_coloured=sys.stdout.isatty()))
    typer.echo(timeline.axis())
    typer.echo(LEGEND)


def _shown_row(row: Row, show_time: Callable[[int | None], str], now_ms: int) -> Row:
    return {
        "p": row["partition"],
        "partition": row["partition"],
        "base": row["base_offset"],
        "next": row["next_offset"],
        "records": f"{'<=' if row['is_record_bound'] else ''}{row['records']:,}",
        "bytes": shown_bytes(row["bytes"]),
        "first": show_time(row["first_timestamp_ms"]),
        "last": show_time(row["last_timestamp_ms"]),
        "state": _shown_state(row),
        "expires": _expiry(row, now_ms),
    }


def _shown_state(row: Row) -> str:
    has_both = row["has_archived_copy"] and row["state"] != "archived"
    return f"{row['state']}, copied" if has_both else str(row["state"])


def _expiry(row: Row, now_ms: int) -> str:
    """In a few words: when the segment expires, and by which rule."""
    if row["verdict"] is None:
        return NOTHING
    if row["verdict"] != "keep":
        what = "local copy now" if row["verdict"] == "drop local copy" else "now"
        return f"{what}: {row['rule']}"
    ways: list[str] = []
    if row["expires_ms"] is not None:
        left_ms = row["expires_ms"] - now_ms
        ways.append(f"in {shown_duration(left_ms)}" if left_ms > 0 else "after older ones")
    for key, rule in (("(retention.bytes)", "size"), ("(retention.segments)", "count")):
        if key in row["reason"]:
            ways.append(rule)
    return " or ".join(ways) or "never"


def _short_times(rows: Sequence[Row], now_ms: int) -> Callable[[int | None], str]:
    """A short form for all times: without the date, or without the year and the seconds."""
    times = [
        time
        for row in rows
        for time in (row["first_timestamp_ms"], row["last_timestamp_ms"])
        if time is not None
    ]
    shown = [shown_time(time) for time in (*times, now_ms)]
    if len({text[:10] for text in shown}) == 1:
        return lambda time: NOTHING if time is None else shown_time(time)[11:19]
    start = 5 if len({text[:4] for text in shown}) == 1 else 0
    return lambda time: NOTHING if time is None else shown_time(time)[start:16]
