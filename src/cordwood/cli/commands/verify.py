"""``cordwood verify``: checks a whole store, or some topics of it."""

import os
import time
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.completion import complete_topic
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.readable_values import counted, shown_bytes, shown_count
from cordwood.cli.render import Column, Row, output_for, progress_bar
from cordwood.cli.terminal import say

if TYPE_CHECKING:
    from cordwood.cli.commands.verification_run import Verified
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

TopicArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        autocompletion=complete_topic,
        help="Topic names. Default: all topics, including internal ones.",
        show_default=False,
    ),
]
JobsOption = Annotated[
    int | None,
    typer.Option(
        "--jobs",
        "-j",
        min=1,
        max=_JOBS_MAX,
        help="Segments to check in parallel. Default: one per processor.",
        show_default=False,
    ),
]
ArchivedOption = Annotated[
    bool, typer.Option("--archived", help="Also download and check archived segments.")
]


def verify(
    topic: TopicArgument = None,
    *,
    at: AtOption = None,
    jobs: JobsOption = None,
    archived: ArchivedOption = False,
    as_json: JsonOption = False,
) -> None:
    """Check every checksum, record, index and checkpoint of a store. Exit code 1 if something is
    damaged.

    The store may be in use: data written, deleted or compacted meanwhile is not reported as
    damage. Nothing is changed. --json prints an object for each problem, then a summary.
    "cordwood dump FILE" shows what is left of a damaged file.

    \b
    Examples:
      cordwood verify
      cordwood verify orders payments --jobs 4 --json
    """
    from cordwood.cli.at.access import open_files
    from cordwood.cli.commands.verification_run import StoreVerification

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
            left = counted(verified.archived_left, "archived segment")
            say(f"{left} not checked; add --archived to check them")
    if verified.problems:
        raise typer.Exit(1)


def problem_row(problem: "SegmentProblem") -> Row:
    """A problem as JSON shows it."""
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


def _summary(verified: "Verified", seconds: float) -> Row:
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
