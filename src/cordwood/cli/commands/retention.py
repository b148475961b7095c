"""``cordwood retention``: explains what retention deletes, when, and why."""

import sys
from typing import TYPE_CHECKING, Final

import typer

from cordwood.cli.options import AtOption, JsonOption, PartitionsOption, TopicArgument
from cordwood.cli.readable_values import NOTHING, counted, shown_bytes, shown_duration, shown_time
from cordwood.cli.render import Column, Row, output_for

if TYPE_CHECKING:
    from cordwood.log.rules.retention import RetentionPlan, SegmentDecision

retention_app = typer.Typer(
    help="Explain what retention deletes, when, and why.", no_args_is_help=True
)

_SEGMENT_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    Column(name="base_offset", is_number=True),
    Column(name="next_offset", is_number=True),
    Column(name="bytes", show=shown_bytes, is_number=True),
    "verdict",
    "expires",
    "reason",
)
_TERMINAL_COLUMNS: Final = tuple(
    column
    for column in _SEGMENT_COLUMNS
    if column != "reason" and not (isinstance(column, Column) and column.name == "next_offset")
)
_TOTAL_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    Column(name="bytes", show=shown_bytes, is_number=True),
    Column(name="freed now", field="bytes_freed_now", show=shown_bytes, is_number=True),
    Column(name="freed later", field="bytes_freed_later", show=shown_bytes, is_number=True),
    Column(name="next expiry"),
    Column(name="new start", field="start_offset_then", is_number=True),
)


@retention_app.callback()
def retention() -> None:
    """Explain what retention deletes, when, and why."""


@retention_app.command("explain")
def explain_retention(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    partition: PartitionsOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what retention would do to a topic now, segment by segment. Nothing is deleted.

    The first table shows for each segment the verdict, and when and by which rule it expires. The
    second shows for each partition how much is freed now and how much expires by age later. In a
    pipe and with --json the reasons are given in full.

    \b
    Examples:
      cordwood retention explain orders
      cordwood retention explain orders -p 0 --json
    """
    from cordwood.cli.at.access import open_files

    with open_files(at, [topic]) as store:
        found = store.topic(topic)
        for number in partition or ():
            found.partition(number)  # raises if there is no such partition
        starts = {log.partition: int(log.view().start) for log in found.partitions}
        plans = [
            plan
            for plan in store.explain_retention(topic)
            if partition is None or plan.partition in partition
        ]
    rows = [plan_row(plan, starts[plan.partition]) for plan in plans]
    if as_json:
        output_for(as_json=True).table((), rows)
        return
    _show(rows)


# --- values ------------------------------------------------------------------------------------


def plan_row(plan: "RetentionPlan", start_offset: int) -> Row:
    """A plan as plain values; "freed" counts bytes on the local disk."""
    from cordwood.log.rules.retention import Verdict

    dated = [
        (min(moments), segment.size_bytes)
        for segment in plan.segments
        if segment.verdict is Verdict.KEEP
        and (moments := [m for m in (segment.expires_ms, segment.local_expires_ms) if m])
    ]
    return {
        "topic": plan.topic,
        "partition": plan.partition,
        "now_ms": plan.now_ms,
        "start_offset": start_offset,
        "start_offset_then": plan.start_offset,
        "local_start_offset_then": plan.local_start_offset,
        "bytes": sum(s.size_bytes for s in plan.segments),
        "bytes_freed_now": plan.local_bytes_reclaimed,
        "bytes_freed_later": sum(size for _, size in dated),
        "next_expires_ms": min((moment for moment, _ in dated), default=None),
        "segments": [_segment_row(segment) for segment in plan.segments],
    }


def _segment_row(segment: "SegmentDecision") -> Row:
    return {
        "base_offset": segment.base_offset,
        "next_offset": segment.next_offset,
        "bytes": segment.size_bytes,
        "is_active": segment.is_active,
        "is_local": segment.is_local,
        "verdict": str(segment.verdict),
        "rule": None if segment.rule is None else str(segment.rule),
        "expires_ms": segment.expires_ms,
        "after_bytes": segment.after_bytes,
        "after_segments": segment.after_segments,
        "local_expires_ms": segment.local_expires_ms,
        "reason": segment.reason,
    }


# --- for people --------------------------------------------------------------------------------


def _show(rows: list[Row]) -> None:
    """A terminal gets the columns that fit a line, a pipe the full reasons."""
    output = output_for(as_json=False)
    segments = [
        {
            **segment,
            "partition": row["partition"],
            "expires": _expiry(segment, row["now_ms"]),
        }
        for row in rows
        for segment in row["segments"]
    ]
    is_terminal = sys.stdout.isatty()
    output.table(_TERMINAL_COLUMNS if is_terminal else _SEGMENT_COLUMNS, segments)
    typer.echo()
    output.table(
        _TOTAL_COLUMNS,
        [{**row, "next expiry": _moment(row["next_expires_ms"], row["now_ms"])} for row in rows],
    )


def _expiry(segment: Row, now_ms: int) -> str:
    """When a segment expires and by which rule; for a kept segment, every rule that could apply."""
    if segment["verdict"] != "keep":
        due_ms = segment["local_expires_ms"] or segment["expires_ms"]
        since = "" if due_ms is None else f", due {shown_duration(now_ms - due_ms)} ago"
        return f"now, by {segment['rule']}{since}"
    ways = []
    if segment["expires_ms"] is not None:
        ways.append(_moment(segment["expires_ms"], now_ms))
    if segment["after_bytes"] is not None:
        ways.append(f"after {shown_bytes(segment['after_bytes'])} more")
    if segment["after_segments"] is not None:
        ways.append(f"after {counted(segment['after_segments'], 'more segment')}")
    local_ms = segment["local_expires_ms"]
    if local_ms is not None and local_ms != segment["expires_ms"]:
        ways.append(f"local copy {_moment(local_ms, now_ms)}")
    return " or ".join(ways) or "never"


def _moment(expires_ms: int | None, now_ms: int) -> str:
    """``in 3.0 h (09:30:00)``, with the date if it is another day."""
    if expires_ms is None:
        return NOTHING
    if expires_ms <= now_ms:
        return "as soon as allowed"
    moment = shown_time(expires_ms)[:19]
    if moment[:10] == shown_time(now_ms)[:10]:
        moment = moment[11:]
    return f"in {shown_duration(expires_ms - now_ms)} ({moment})"
