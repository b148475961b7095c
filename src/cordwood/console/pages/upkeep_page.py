"""What retention, compaction and the archive will do, and what they did lately."""

from heapq import nlargest
from typing import Final

from cordwood.console.facts.cluster_facts import PartitionFacts, Place
from cordwood.console.facts.events import COMPACTION, RETENTION, Event
from cordwood.console.pages.page import PageRequest
from cordwood.console.pages.segment_pages import survey_of
from cordwood.console.views.table import Column, TablePage, TableState, table_page
from cordwood.errors import CordwoodError
from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.value_class import dataclass

# Partitions that are planned for one page, of all topics and of one: each plan reads a directory.
_PLANNED_MAX: Final = 50
_PLANNED_OF_TOPIC_MAX: Final = 300
_EVENTS_SHOWN: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepRow:
    """One partition: what goes now, what goes next, and whether it is compacted."""

    topic: str
    partition: int
    segment_count: int
    due_segments: int
    due_bytes: int
    next_reason: str
    next_expires_ms: int | None
    next_after_bytes: int | None
    compaction_reason: str | None
    is_compaction_due: bool
    dirty_ratio: float | None
    dirty_bytes: int | None
    archived_up_to: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpkeepView:
    table: TablePage[UpkeepRow]
    planned: int
    total: int
    topic: str
    archives: tuple[ArchiveStatus, ...]
    archive_problem: str | None
    events: tuple[Event, ...]
    watched_since_ms: int


_COLUMNS: Final[tuple[Column[UpkeepRow], ...]] = (
    Column(name="topic", title="Partition", value=lambda r: f"{r.topic}-{r.partition}"),
    Column(name="segments", title="Segments", value=lambda r: r.segment_count, is_number=True),
    Column(name="due", title="Due now", value=lambda r: r.due_bytes, is_number=True),
    Column(name="next", title="Next deletion", value=lambda r: r.next_expires_ms, is_number=True),
    Column(name="dirty", title="Dirty", value=lambda r: r.dirty_ratio, is_number=True),
    Column(name="compaction", title="Compaction", value=lambda r: r.compaction_reason),
)


def show_upkeep(request: PageRequest) -> UpkeepView:
    survey_of(request)
    wanted = request.text("topic")
    partitions = [
        facts
        for name, topic in request.snapshot.topics.items()
        if (not topic.is_internal or wanted == name) and (not wanted or name == wanted)
        for facts in topic.partitions
    ]
    by_topic: dict[str, list[int]] = {}
    most = _PLANNED_OF_TOPIC_MAX if wanted else _PLANNED_MAX
    for name, number in sorted(_largest(partitions, most)):
        by_topic.setdefault(name, []).append(number)
    rows: list[UpkeepRow] = []
    for name, numbers in by_topic.items():
        try:
            rows += _rows(request, name, numbers)
        except (CordwoodError, OSError):
            continue  # deleted meanwhile, or unreadable: other pages say so
    archives, problem = _archives(request)
    state = TableState.parse(request.parameters, sort="-due")
    events = request.console.keeper.events if request.viewer.sees_cluster else ()
    history = [event for event in events if event.kind in {RETENTION, COMPACTION}]
    return UpkeepView(
        table=table_page(rows, _COLUMNS, state, text=lambda row: f"{row.topic}-{row.partition}"),
        planned=min(len(partitions), most),
        total=len(partitions),
        topic=wanted,
        archives=archives,
        archive_problem=problem,
        events=tuple(reversed(history[-_EVENTS_SHOWN:])),
        watched_since_ms=request.console.started_ms,
    )


def _largest(partitions: list[PartitionFacts], most: int) -> list[Place]:
    """Those in which upkeep has most to do."""
    found = nlargest(most, partitions, key=lambda f: (f.segment_count or 0, f.size_bytes or 0))
    return [(facts.topic, facts.partition) for facts in found]


def _rows(request: PageRequest, topic: str, numbers: list[int]) -> list[UpkeepRow]:
    found: list[UpkeepRow] = []
    for log in survey_of(request).logs(topic, numbers, ahead_ms=0):
        due = [s for s in log.retention.segments if s.verdict.value != "keep"]
        kept = next((s for s in log.retention.segments if s.verdict.value == "keep"), None)
        plan = log.compaction
        is_compacted = "does not include" not in plan.reason
        found.append(
            UpkeepRow(
                topic=topic,
                partition=log.partition,
                segment_count=len(log.segments),
                due_segments=len(due),
                due_bytes=sum(s.size_bytes for s in due),
                next_reason="" if kept is None else kept.reason,
                next_expires_ms=None if kept is None else kept.expires_ms,
                next_after_bytes=None if kept is None else kept.after_bytes,
                compaction_reason=plan.reason.value if is_compacted else None,
                is_compaction_due=plan.is_due,
                dirty_ratio=plan.dirty_ratio if is_compacted else None,
                dirty_bytes=plan.cleanable_bytes if is_compacted else None,
                archived_up_to=log.archived_up_to,
            )
        )
    return found


def _archives(request: PageRequest) -> tuple[tuple[ArchiveStatus, ...], str | None]:
    opened = request.console.opened
    if opened is None or not any(t.has_archive for t in request.snapshot.topics.values()):
        return (), None
    try:
        status = opened.store.archive_status()
    except (CordwoodError, OSError) as error:
        return (), str(error)
    return tuple(s for s in status if s.topic in request.snapshot.topics), None
