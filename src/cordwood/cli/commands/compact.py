"""``cordwood compact``: keeping the newest record of each key, now; or what that would do."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.at.target import AtOption
from cordwood.cli.completion_names import PartitionsOption, TopicArgument
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, output_for

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordwood.log.store.read_only_store import ReadOnlyStore

_RESULT_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    "outcome",
    Column(name="before", show=shown_bytes, is_number=True),
    Column(name="after", show=shown_bytes, is_number=True),
    Column(name="removed", show=shown_count, is_number=True),
    Column(name="seconds", is_number=True),
    "reason",
)
_PLAN_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    Column(name="due"),
    Column(name="dirty", show=lambda ratio: f"{ratio:.0%}", is_number=True),
    Column(name="to read", show=shown_bytes, is_number=True),
    Column(name="to save", show=shown_bytes, is_number=True),
    Column(name="to remove", show=shown_count, is_number=True),
    "reason",
)


def compact(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    partition: PartitionsOption = None,
    force: Annotated[
        bool,
        typer.Option(
            "--force/--due-only",
            help="All of it, active segments too, which are sealed first; or only what is due.",
        ),
    ] = True,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be done, and change nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Compact a topic now: of each key the newest record stays.

    Whoever owns the store does it, beside reading and writing. A dry run reads what a run would
    read, and says what it would save. Exit code 1 where a partition failed.

    \b
    Examples:
      cordwood compact accounts --dry-run
      cordwood compact accounts --due-only
    """
    from cordwood.cli.at.opened_files import open_files
    from cordwood.cli.at.owner_changes import ask_owner
    from cordwood.errors import LogError
    from cordwood.log.inbox.upkeep_change import CompactTopic

    with open_files(at, [topic]) as store:
        found = store.topic(topic)
        for number in partition or ():
            found.partition(number)
        if not found.config.is_compacted:
            policy = ",".join(found.config.cleanup_policy)
            raise LogError(
                f"topic {topic} is not compacted, its cleanup.policy is {policy}: set it with "
                f"cordwood topics alter {topic} --config cleanup.policy=compact"
            )
        if dry_run:
            rows = _forecast_rows(store, topic, partition, force=force)
            _show_plans(rows, as_json=as_json)
            typer.secho("nothing was compacted: leave out --dry-run to do so", err=True)
            return
        paths = store.data_dirs
    change = CompactTopic(
        topic=topic,
        topic_id=found.topic_id,
        partitions=tuple(partition) if partition else None,
        force=force,
    )
    answer = ask_owner(paths, change, label=f"compacting {topic}")
    rows = [{"topic": topic, **row} for row in answer.facts["partitions"]]
    _show_results(rows, as_json=as_json)
    if any(row["outcome"] == "failed" for row in rows):
        raise typer.Exit(1)


def _forecast_rows(
    store: "ReadOnlyStore", topic: str, partitions: "Sequence[int] | None", *, force: bool
) -> list[dict[str, Any]]:
    """For each partition the plan, and what following it would save."""
    from cordwood.cli.render import progress_bar

    plans = [
        plan
        for plan in store.explain_compaction(topic, force=force)
        if partitions is None or plan.partition in partitions
    ]
    total = sum(plan.bytes_to_read for plan in plans if plan.is_due)
    rows = []
    with progress_bar(f"reading {topic}", total=total) as advance:
        for plan in plans:
            forecast = store.forecast_compaction(plan, pace=advance) if plan.is_due else None
            rows.append(
                {
                    "topic": topic,
                    "partition": plan.partition,
                    "is_due": plan.is_due,
                    "reason": str(plan.reason),
                    "dirty_ratio": round(plan.dirty_ratio, 4),
                    "clean_bytes": plan.clean_bytes,
                    "dirty_bytes": plan.cleanable_bytes,
                    "out_of_reach_bytes": plan.uncleanable_bytes,
                    "first_dirty": int(plan.first_dirty),
                    "first_uncleanable": int(plan.first_uncleanable),
                    "bytes_read": plan.bytes_to_read if plan.is_due else 0,
                    "bytes_saved": 0 if forecast is None else forecast.bytes_saved,
                    "records_removed": 0 if forecast is None else forecast.records_removed,
                    "keys": None if forecast is None else forecast.keys,
                }
            )
    return rows


def _show_plans(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    output = output_for(as_json=as_json)
    if as_json:
        output.table((), rows)
        return
    output.table(
        _PLAN_COLUMNS,
        [
            {
                "partition": row["partition"],
                "due": row["is_due"],
                "dirty": row["dirty_ratio"],
                "to read": row["bytes_read"],
                "to save": row["bytes_saved"],
                "to remove": row["records_removed"],
                "reason": row["reason"],
            }
            for row in rows
        ],
    )


def _show_results(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    output = output_for(as_json=as_json)
    if as_json:
        output.table((), rows)
        return
    is_plain = all(row["outcome"] == "done" for row in rows)
    output.table(
        _RESULT_COLUMNS[:-1] if is_plain else _RESULT_COLUMNS,
        [
            {
                **row,
                "before": row["bytes_before"],
                "after": row["bytes_after"],
                "removed": row["records_removed"],
            }
            for row in rows
        ],
    )
