"""`export`: copy a topic into a Parquet, Delta or Iceberg table; each run adds the new records.

The table stores its offsets, with the topic's id, and changes them in the same commit as its rows.
So it contains each offset once, even if a run is killed. The table, and the log from those offsets
on, contain every record once: `table_and_tail`.

With a schema, values are decoded from JSON. A value that does not decode goes unchanged, with the
reason, to a second table beside the first. That one is committed first and stores its offsets too.
If a run ended between the two commits, the next run first brings the table up to the second one.
"""

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.json_values import (
    DECODED,
    REASON,
    decode_values,
    infer_schema,
    parse_schema,
)
from cordwood.spark.jobs.tables.lake_table import TABLE_COLUMNS, LakeTable, TableState, WrittenFile
from cordwood.spark.jobs.tables.lake_target import LakeTarget, read_files
from cordwood.spark.jobs.topic_span import TopicSpan, plan_span
from cordwood.value_class import dataclass, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

INFER: Final = "infer"
REJECTED_SUFFIX: Final = "_rejected"
COMMIT_RECORDS: Final = 100_000_000

_VALUE_SCHEMA: Final = "value_schema"
_ACCEPTED: Final = "accepted"
_REJECTED: Final = "rejected"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportOptions:
    """Source and target. `value_schema` is a schema, "infer", or None for values as bytes.

    A run commits after each `commit_records` records, so that a long run that is killed loses only
    its last part.
    """

    paths: tuple[str, ...]
    topics: tuple[str, ...]
    target: LakeTarget
    value_schema: str | None = None
    commit_records: int = COMMIT_RECORDS
    fails_on_data_loss: bool = True
    is_dry_run: bool = False

    def __post_init__(self) -> None:
        if self.commit_records < 1:
            raise ConfigError("commit records", self.commit_records, "must be at least 1")


def transform(df: "DataFrame", schema: "StructType | None" = None) -> "DataFrame":
    """The rows of the table, from rows of `format("cordwood")` with headers.

    With a schema `value` is a struct, and rows whose value does not fit are left out.
    """
    if schema is None:
        return df.select(*TABLE_COLUMNS)
    decoded = decode_values(df, schema).where(f"{REASON} IS NULL")
    return decoded.withColumn("value", decoded[DECODED]).select(*TABLE_COLUMNS)


def run_export(
    spark: "SparkSession | None", options: ExportOptions, report: Report = report_nothing
) -> JobReport:
    """Bring the table up to date, or report what that would do."""
    job = _ExportJob(options)
    if options.is_dry_run:
        return job.dry_run()
    assert spark is not None, "a session is needed for all but a dry run"
    return job.run(spark, JobProgress(spark, report))


def table_and_tail(spark: "SparkSession", target: LakeTarget, paths: Sequence[str]) -> "DataFrame":
    """The rows of the table, then the later records of the log: each offset once."""
    table = target.open()
    state = table.load()
    if state is None:
        raise ConfigError("table", table.name, "unknown table")
    topics = sorted({topic for topic, _ in state.offsets})
    span = plan_span(paths, topics, state, table=table.name)
    schema = _schema_in(state.settings)
    tail = transform(span.load(spark, TABLE_COLUMNS), schema)
    files = table.files()
    return read_files(spark, files).select(*TABLE_COLUMNS).unionByName(tail) if files else tail


class _ExportJob:
    """One run, of one or more commits."""

    def __init__(self, options: ExportOptions) -> None:
        self._options = options
        self._table = options.target.open()
        self._rejects = options.target.beside(REJECTED_SUFFIX).open()
        self._rows: dict[str, int] = {_ACCEPTED: 0, _REJECTED: 0}
        self._files = self._commits = 0
        self._held: TableState | None = None
        self._schemas: dict[str, pa.Schema] = {}

    # --- planning ----------------------------------------------------------------------------

    def _plan(self, state: TableState | None) -> TopicSpan:
        options = self._options
        topics = dict.fromkeys((*options.topics, *({} if state is None else _topics(state))))
        return plan_span(
            options.paths,
            list(topics),
            state,
            table=self._table.name,
            fails_on_data_loss=options.fails_on_data_loss,
        )

    def dry_run(self) -> JobReport:
        span = self._plan(self._table.load())
        return JobReport(
            job="export",
            rows=span.rows(),
            totals={"offsets": span.count},
            is_dry_run=True,
        )

    # --- doing it ------------------------------------------------------------------------------

    def run(self, spark: "SparkSession", progress: JobProgress) -> JobReport:
        self._held = self._table.load()
        whole = self._plan(self._held)
        if not whole.count:
            return self._report(whole)
        settings = self._settings(spark, self._held, whole)
        done = 0
        span = whole
        while span.count:
            part = self._part(span, settings)
            with progress.step(f"writing {self._table.name}"):
                self._export(spark, part, settings)
            done += part.count
            progress.count("offsets", done, whole.count)
            span = replace(span, starts=part.stops)
        return self._report(whole)

    def _part(self, span: TopicSpan, settings: Mapping[str, str]) -> TopicSpan:
        """The next part to commit."""
        if _VALUE_SCHEMA in settings:
            rejected = self._rejects.load()
            if rejected is not None:
                ahead = span.up_to(rejected.offsets)
                if ahead.count:
                    return ahead
        return span.limited(self._options.commit_records)

    def _settings(
        self, spark: "SparkSession", state: TableState | None, span: TopicSpan
    ) -> dict[str, str]:
        """The settings of the table; for a new table those of the options."""
        wanted = self._options.value_schema
        if state is not None and state.offsets:
            kept = state.settings.get(_VALUE_SCHEMA)
            if wanted not in (None, INFER) and kept != _render_schema(parse_schema(wanted or "")):
                raise ConfigError(
                    "value schema", wanted, f"{self._table.name} was made with another one: {kept}"
                )
            return dict(state.settings)
        if wanted is None:
            return {}
        if wanted == INFER:
            return {_VALUE_SCHEMA: _render_schema(infer_schema(spark, span.load(spark, ["value"])))}
        return {_VALUE_SCHEMA: _render_schema(parse_schema(wanted))}

    def _export(self, spark: "SparkSession", span: TopicSpan, settings: Mapping[str, str]) -> None:
        run_id = uuid.uuid4().hex
        try:
            written = self._write(spark, span, settings, run_id)
            if written.get(_REJECTED):
                self._commit_rejected(span, settings, written[_REJECTED], run_id)
            self._table.commit(
                span.state(self._held, settings),
                self._schemas[_ACCEPTED],
                run_id=run_id,
                added=written.get(_ACCEPTED, ()),
            )
        finally:
            self._table.discard(run_id)
            self._rejects.discard(run_id)
        self._held = self._table.load()
        for kind, files in written.items():
            self._rows[kind] += sum(file.rows for file in files)
            self._files += len(files)
        self._commits += 1

    def _commit_rejected(
        self,
        span: TopicSpan,
        settings: Mapping[str, str],
        files: list[WrittenFile],
        run_id: str,
    ) -> None:
        held = self._rejects.load()
        if held is None or span.behind(held).count:
            self._rejects.commit(
                span.state(held, settings), self._schemas[_REJECTED], run_id=run_id, added=files
            )
        # Otherwise a run that was killed between the commits has committed this one.

    # --- with Spark ----------------------------------------------------------------------------

    def _write(
        self, spark: "SparkSession", span: TopicSpan, settings: Mapping[str, str], run_id: str
    ) -> dict[str, list[WrittenFile]]:
        """Write the files of both tables in one pass over the log."""
        from cordwood.spark.jobs.tables.lake_files import (
            FILE_SCHEMA,
            FileKind,
            LakeWriter,
            collect_files,
            table_schema,
        )

        df = span.load(spark, TABLE_COLUMNS)
        value_schema = _schema_in(settings)
        self._schemas = {_ACCEPTED: table_schema(transform(df, value_schema).schema)}
        kinds = [self._kind(FileKind, _ACCEPTED, self._table, run_id)]
        rows = df
        if value_schema is not None:
            rows = decode_values(df, value_schema).withColumnRenamed("value", "raw")
            rows = rows.withColumnRenamed(DECODED, "value")
            rejected = decode_values(df, value_schema).select(*TABLE_COLUMNS, REASON)
            self._schemas[_REJECTED] = table_schema(rejected.schema)
            kinds.append(self._kind(FileKind, _REJECTED, self._rejects, run_id))

        def write(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            writers = {kind.name: LakeWriter(kind, kind.name) for kind in kinds}
            for batch in batches:
                for name, part in _sorted_out(batch):
                    writers[name].write(part)
            for writer in writers.values():
                yield writer.finish()

        return collect_files(rows.mapInArrow(write, FILE_SCHEMA))

    def _kind(self, make: Any, name: str, table: LakeTable, run_id: str) -> Any:
        return make(name=name, directory=table.staging(run_id), schema=self._schemas[name])

    def _report(self, span: TopicSpan) -> JobReport:
        return JobReport(
            job="export",
            rows=span.rows(),
            totals={
                "records": self._rows[_ACCEPTED],
                "rejected": self._rows[_REJECTED],
                "files": self._files,
                "commits": self._commits,
            },
        )


def _sorted_out(batch: "pa.RecordBatch") -> Iterator[tuple[str, "pa.RecordBatch"]]:
    """The rows of each table, with its columns."""
    import pyarrow.compute as pc

    if REASON not in batch.schema.names:
        yield _ACCEPTED, batch
        return
    is_taken = pc.is_null(batch.column(REASON))
    yield _ACCEPTED, batch.filter(is_taken)
    left = batch.filter(pc.invert(is_taken))
    if left.num_rows:
        names = [
            "value" if name == "raw" else name for name in left.schema.names if name != "value"
        ]
        yield _REJECTED, left.drop_columns(["value"]).rename_columns(names)


def _topics(state: TableState) -> list[str]:
    return sorted({topic for topic, _ in state.offsets})


def _render_schema(schema: "StructType") -> str:
    return json.dumps(schema.jsonValue(), sort_keys=True)


def _schema_in(settings: Mapping[str, str]) -> "StructType | None":
    text = settings.get(_VALUE_SCHEMA)
    return None if text is None else parse_schema(text)
