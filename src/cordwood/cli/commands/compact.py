"""``cordwood compact``: compacts a topic now, or shows what compaction would do."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.options import (
    AtOption,
    DryRunOption,
    JsonOption,
    PartitionsOption,
    TopicArgument,
)
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordwood.log.store.read_only_store import ReadOnlyStore

_RESULT_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    "outcome",
    Column(name="before", field="bytes_before", show=shown_bytes, is_number=True),
    Column(name="after", field="bytes_after", show=shown_bytes, is_number=True),
    Column(name="removed", field="records_removed", show=shown_count, is_number=True),
    Column(name="seconds", is_number=True),
    "reason",
)
_PLAN_COLUMNS: Final = (
    Column(name="partition", is_number=True),
    Column(name="due", field="is_due"),
    Column(name="dirty", field="dirty_ratio", show=lambda ratio: f"{ratio:.0%}", is_number=True),
    Column(name="to read", field="bytes_read", show=shown_bytes, is_number=True),
    Column(name="to save", field="bytes_saved", show=shown_bytes, is_number=True),
    Column(name="to remove", field="records_removed", show=shown_count, is_number=True),
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
            help="Compact everything, after sealing active segments; or only what is due.",
        ),
    ] = True,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Compact a topic now, keeping only the newest record of each key.

    The owner of the store compacts; reading and writing continue meanwhile. A dry run reads the
    same data and shows what a run would save. Exit code 1 if a partition failed.

    \b
    Examples:
      cordwood compact accounts --dry-run
      cordwood compact accounts --due-only
    """
    from cordwood.cli.at.access import open_files
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
                f"topic {topic} is not compacted, its cleanup.policy is {policy}; change it with "
                f"`cordwood topics alter {topic} --config cleanup.policy=compact`"
            )
        if dry_run:
            rows = _forecast_rows(store, topic, partition, force=force)
            output_for(as_json=as_json).table(_PLAN_COLUMNS, rows)
            say("dry run: nothing was compacted")
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
    is_all_done = all(row["outcome"] == "done" for row in rows)
    columns = _RESULT_COLUMNS[:-1] if is_all_done else _RESULT_COLUMNS
    output_for(as_json=as_json).table(columns, rows)
    if any(row["outcome"] == "failed" for row in rows):
        raise typer.Exit(1)


def _forecast_rows(
    store: "ReadOnlyStore", topic: str, partitions: "Sequence[int] | None", *, force: bool
) -> list[Row]:
    """The plan of each partition, and what it would save."""
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
