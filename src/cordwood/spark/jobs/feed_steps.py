"""What a feed of a table does next, from what its two tables hold. Pure.

A topic feeds a table and a table of rejected rows beside it. Each stores its offsets in the same
commit as its rows. One part of the topic takes these steps, and a run may be killed after any:

    1  stage files of both tables            nobody sees them; the next run stages others
    2  commit the rejected rows, if any      the rejected table is ahead of the table
    3  commit the table                      both agree

A run that finds the rejected table ahead does step 3 for exactly that part, with the settings that
the rejected table stored: decoding is a function of the settings and the bytes, so the same rows
are rejected, and they are there already.

Rejected rows are replayed in two commits as well: the table gets the rows that fit now, with the
names of the files they came from; then these files leave the rejected table. A run that finds such
files still there does the second commit first.
"""

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from cordwood.errors import FormatError
from cordwood.spark.jobs.topic_span import TopicSpan
from cordwood.spark.tables.lake_table import TableState
from cordwood.value_class import dataclass, field

REPLAYED: Final = "replayed"  # a setting of the table: names of files of the rejected one


class StepKind(StrEnum):
    FINISH_REPLAY = "finish replay"
    RECOVER = "recover"
    WRITE = "write"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class FeedStep:
    """One step.

    span      the offsets to write
    settings  for RECOVER: those of the rejected table
    files     for FINISH_REPLAY: names of files to remove from the rejected table
    """

    kind: StepKind
    span: TopicSpan | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    files: frozenset[str] = field(default_factory=frozenset)


def next_step(
    span: TopicSpan,
    main: TableState | None,
    rejected: TableState | None,
    rejected_files: Iterable[str],
    *,
    commit_records: int,
) -> FeedStep:
    """The next step. `span` begins where the table ends; files are named without directories."""
    pending = replayed_files(main) & frozenset(rejected_files)
    if pending:
        return FeedStep(kind=StepKind.FINISH_REPLAY, files=pending)
    if rejected is not None:
        ahead = span.up_to(rejected.offsets)
        if ahead.count:
            return FeedStep(kind=StepKind.RECOVER, span=ahead, settings=rejected.settings)
    if span.count:
        return FeedStep(kind=StepKind.WRITE, span=span.limited(commit_records))
    return FeedStep(kind=StepKind.IDLE)


def replayed_files(main: TableState | None) -> frozenset[str]:
    """The names of the files that the last replay took rows from."""
    if main is None or REPLAYED not in main.settings:
        return frozenset()
    try:
        return frozenset(map(str, json.loads(main.settings[REPLAYED])))
    except (ValueError, TypeError) as error:
        raise FormatError(f"the replayed files stored in the table: {error}") from error


def with_replayed(settings: Mapping[str, str], files: Iterable[str]) -> dict[str, str]:
    """The settings of the commit that adds replayed rows."""
    return {**settings, REPLAYED: json.dumps(sorted(files))}
