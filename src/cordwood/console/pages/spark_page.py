"""Jobs and streams of Spark that read or write the store."""

from typing import Final

from cordwood.console.decoding.value_decoders import visible
from cordwood.console.facts.job_census import JobFacts, WriterFacts, job_facts
from cordwood.console.pages.page import PageNotFoundError, PageRequest
from cordwood.console.views.lag import offsets_behind
from cordwood.console.views.table import Column, TablePage, TableState, table_page
from cordwood.log.beside.job_traces import RUNNING, JobTrace
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRow:
    """A job or a stream. `share` is how far its step is; `behind` how far a stream is."""

    kind: str
    subject: str
    state: str
    step: str
    share: float | None
    behind: int | None
    host: str
    process: int
    started_ms: int
    took_ms: int | None
    beat_ms: int
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkView:
    jobs: tuple[JobRow, ...]
    running_count: int
    table: TablePage[WriterFacts]
    staged_count: int
    request_count: int
    problem: str | None


_COLUMNS: Final[tuple[Column[WriterFacts], ...]] = (
    Column(name="name", title="Query or job", value=lambda r: r.name),
    Column(
        name="number",
        title="Last batch",
        value=lambda r: r.number,
        is_number=True,
        help="Batches with this number or a lower one are not written again",
    ),
    Column(name="time", title="Published", value=lambda r: r.published_ms, is_number=True),
)


def show_spark(request: PageRequest) -> SparkView:
    request.check_sees_cluster()
    opened = request.console.opened
    if opened is None:
        raise PageNotFoundError("Jobs leave their traces in the files, which are not here.")
    facts = job_facts(opened.store.data_dirs)
    jobs = [_job_row(trace, request) for trace in facts.traces]
    jobs.sort(key=lambda job: (job.state != RUNNING, -job.started_ms))
    return SparkView(
        jobs=tuple(jobs),
        running_count=sum(job.state == RUNNING for job in jobs),
        table=_writers(facts, request),
        staged_count=facts.staged_count,
        request_count=facts.request_count,
        problem=facts.problem,
    )


def _writers(facts: JobFacts, request: PageRequest) -> TablePage[WriterFacts]:
    return table_page(
        facts.writers,
        _COLUMNS,
        TableState.parse(request.parameters, sort="-time"),
        text=lambda writer: writer.name,
    )


def _job_row(trace: JobTrace, request: PageRequest) -> JobRow:
    state = trace.state(request.now_ms)
    end_ms = trace.ended_ms if trace.ended_ms is not None else trace.beat_ms
    return JobRow(
        kind=visible(trace.kind),
        subject=visible(trace.subject),
        state=state,
        step=visible(trace.step),
        share=min(trace.done / trace.total, 1.0) if trace.total else None,
        behind=offsets_behind(trace.positions, request.snapshot) if state == RUNNING else None,
        host=visible(trace.host),
        process=trace.process,
        started_ms=trace.started_ms,
        took_ms=max(end_ms - trace.started_ms, 0),
        beat_ms=trace.beat_ms,
        text=visible(trace.text),
    )
