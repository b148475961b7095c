"""``cordwood verify``: everything in a store, or in some topics of it, held against its rules."""

import os
import time
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.at.target import AtOption
from cordwood.cli.completion_names import complete_topic
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, output_for, progress_bar

if TYPE_CHECKING:
    from cordwood.cli.commands.parallel_verification import Verified
    from cordwood.log.inspection.segment_check import SegmentProblem

_JOBS_MAX: Final = 64
_MB: Final = 1_000_000
_COLUMNS: Final = (
    "result",
    Column(name="problems", show=shown_count),
    Column(name="partitions", show=shown_count),
    Column(name="segments", show=shown_count),
    Column(name="records", show=shown_count),
    Column(name="bytes", show=shown_bytes),
    "time",
)


def verify(
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            autocompletion=complete_topic,
            help="Only these; else all, those kept for groups and transactions too.",
            show_default=False,
        ),
    ] = None,
    *,
    at: AtOption = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            max=_JOBS_MAX,
            help="So many segments at a time; else one for each processor.",
            show_default=False,
        ),
    ] = None,
    archived: Annotated[
        bool, typer.Option("--archived", help="Archived segments too: they are fetched for it.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each problem, and a summary.")
    ] = False,
) -> None:
    """Check a whole store: every checksum, record, index and checkpoint. Exit code 1 for damage.

    Works beside a live writer: what is written, deleted or compacted meanwhile is no problem.
    Nothing is changed. "cordwood dump FILE" shows what is left of a damaged file.

    \b
    Examples:
      cordwood verify
      cordwood verify orders payments --jobs 4 --json
    """
    from cordwood.cli.at.opened_files import open_files
    from cordwood.cli.commands.parallel_verification import StoreVerification

    started_s = time.monotonic()
    with open_files(at, topic or ()) as store:
        verification = StoreVerification(store, topic or None, with_archived=archived)
        with progress_bar("verifying", total=verification.bytes_total) as advance:
            verified = verification.run(advance, jobs=jobs or os.cpu_count() or 1)
    summary = _summary(verified, time.monotonic() - started_s)
    output = output_for(as_json=as_json)
    if as_json:
        output.table((), [problem_row(problem) for problem in verified.problems])
        output.facts((), {"kind": "summary", **summary})
    else:
        for problem in verified.problems:
            typer.echo(problem_line(problem))
        if verified.problems:
            typer.echo()
        speed = f"{summary['seconds']:.2f} s, {summary['mb_per_second']:,.0f} MB/s"
        output.facts(_COLUMNS, {**summary, "time": speed})
        if verified.archived_left:
            _say(f"{verified.archived_left:,} archived segments were not looked at: add --archived")
    if verified.problems:
        raise typer.Exit(1)


def problem_row(problem: "SegmentProblem") -> dict[str, Any]:
    """A problem as JSON has it."""
    return {
        "kind": "problem",
        "file": problem.file,
        "position": problem.position,
        "offset": problem.offset,
        "next_offset": problem.next_offset,
        "reason": problem.reason,
    }


def problem_line(problem: "SegmentProblem") -> str:
    """``FILE: byte 80, offsets 3 to 7: the checksum does not match``."""
    place = [] if problem.position is None else [f"byte {problem.position}"]
    if problem.offset is not None:
        is_one = problem.next_offset in (None, problem.offset + 1)
        rest = "" if is_one else f" to {(problem.next_offset or 0) - 1}"
        place.append(f"offset{'' if is_one else 's'} {problem.offset}{rest}")
    return ": ".join(filter(None, (problem.file, ", ".join(place), problem.reason)))


def _summary(verified: "Verified", seconds: float) -> dict[str, Any]:
    return {
        "result": "damaged" if verified.problems else "sound",
        "problems": len(verified.problems),
        "topics": verified.topics,
        "partitions": verified.partitions,
        "segments": verified.segments,
        "batches": verified.batches,
        "records": verified.records,
        "bytes": verified.bytes,
        "archived_segments_left": verified.archived_left,
        "seconds": round(seconds, 3),
        "mb_per_second": round(verified.bytes / _MB / max(seconds, 1e-9), 1),
    }


def _say(text: str) -> None:
    typer.secho(text, err=True)
