"""`materialize`: fold a changelog into a table with the current value of each key.

A tombstone removes its key. A run reads the new records and rewrites only the parts of the table
that contain their keys: the hash of the key divides the table into buckets of one file each. The
table stores its offsets as an exported table does, in the same commit.

A rebuild from the beginning of the log gives the same table, row for row: the row of a key depends
only on its newest record, which compaction keeps. Keys are followed within their partition, as
everywhere in Kafka; records without a key are ignored.

With `follow_s` the job goes on: it takes in what is new every few seconds, until it is stopped.
"""

import re
import threading
import time
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError
from cordwood.spark.decoding.column_format import Encoding
from cordwood.spark.decoding.row_decoding import RowFormat
from cordwood.spark.jobs.decoded_column import decoded_column
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.row_choice import (
    INFER,
    RowChoice,
    TableRows,
    kept_rows,
    new_rows,
    opened_evolution,
)
from cordwood.spark.jobs.shuffle_width import narrowed
from cordwood.spark.jobs.topic_span import TopicSpan, plan_span
from cordwood.spark.tables.lake_table import BUCKETS as BUCKETS_SETTING
from cordwood.spark.tables.lake_table import TableState, UpkeepPolicy, WrittenFile
from cordwood.spark.tables.lake_target import LakeTarget, TableFormat, read_files
from cordwood.spark.tables.table_upkeep import keep_up
from cordwood.value_class import dataclass, field, replace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BUCKETS: Final = 16
BUCKETS_MAX: Final = 10_000
UPKEEP_COMMITS: Final = 100

_READ: Final = ("key", "value", "partition", "offset", "timestamp")
_BUCKET: Final = "__bucket"
DECODED: Final = "decoded"
_RESCUED: Final = "__rescued"
_ID: Final = "CAST(conv(hex(substring(value, 2, 4)), 16, 10) AS BIGINT)"
_NAME: Final = re.compile(r"bucket-([0-9]{5})-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeOptions:
    """Source and target. With a schema there is also a column `decoded`, null if it does not fit.

    `value_schema` is short for a choice of JSON values with that schema. With Debezium's envelope,
    `decoded` is the row after the change, and a deletion removes its key.

    buckets          number of parts of a new table; more for larger ones
    is_rebuild       start again from the beginning of the log
    follow_s         go on until stopped, and take in what is new as often as that; None: once
    upkeep           expire old versions and remove leftovers; None: never. Files are not merged:
                     each is a bucket
    upkeep_commits   after so many commits, and at the end
    """

    paths: tuple[str, ...]
    topic: str
    target: LakeTarget
    value_schema: str | None = None
    rows: RowChoice = field(default_factory=RowChoice)
    buckets: int = BUCKETS
    is_rebuild: bool = False
    fails_on_data_loss: bool = True
    is_dry_run: bool = False
    follow_s: float | None = None
    upkeep: UpkeepPolicy | None = None
    upkeep_commits: int = UPKEEP_COMMITS

    def __post_init__(self) -> None:
        if self.follow_s is not None and not 0.1 <= self.follow_s <= 86_400:
            raise ConfigError("every", self.follow_s, "must be 0.1 to 86400 seconds")
        if self.upkeep_commits < 1:
            raise ConfigError("upkeep commits", self.upkeep_commits, "must be at least 1")
        if not 1 <= self.buckets <= BUCKETS_MAX:
            raise ConfigError("buckets", self.buckets, f"must be 1 to {BUCKETS_MAX}")
        if INFER in {self.value_schema, self.rows.value.schema}:
            raise ConfigError("value schema", INFER, "a state grows piece by piece; set a schema")

    @property
    def choice(self) -> RowChoice:
        if self.value_schema is None:
            return self.rows
        return replace(self.rows, value=replace(self.rows.value, schema=self.value_schema))


def transform(df: "DataFrame") -> "DataFrame":
    """The newest row of each key of each partition, with tombstones, without keyless rows."""
    from pyspark.sql import functions as fn

    newest = fn.max_by(fn.struct("value", "offset", "timestamp"), "offset").alias("newest")
    return (
        df.where("key IS NOT NULL")
        .groupBy("partition", "key")
        .agg(newest)
        .select("key", "newest.value", "partition", "newest.offset", "newest.timestamp")
    )


def run_materialize(
    spark: "SparkSession | None",
    options: MaterializeOptions,
    report: Report = report_nothing,
    *,
    stop: threading.Event | None = None,
) -> JobReport:
    """Bring the table up to date, or report what that would do.

    With `follow_s`, return when `stop` is set, after the commit in progress.
    """
    job = _MaterializeJob(options)
    if options.is_dry_run:
        return job.dry_run()
    assert spark is not None, "a session is needed for all but a dry run"
    return job.run(spark, JobProgress(spark, report), stop or threading.Event())


class _MaterializeJob:
    """One run, of one or more commits."""

    def __init__(self, options: MaterializeOptions) -> None:
        self._options = options
        self._is_rebuild = options.is_rebuild
        self._totals: dict[str, Any] = {}
        self._since_upkeep = 0
        self._table = options.target.open(replaces=True)
        self._widens = options.target.format.can_widen

    def _plan(self, state: TableState | None) -> TopicSpan:
        options = self._options
        if state is not None:
            state.check_keys(self._table.name)
        held = None if self._is_rebuild else state
        if held is not None and any(topic != options.topic for topic, _ in held.offsets):
            topics = ", ".join(sorted({topic for topic, _ in held.offsets}))
            raise ConfigError("topic", options.topic, f"{self._table.name} is made of {topics}")
        return plan_span(
            options.paths,
            [options.topic],
            held,
            table=self._table.name,
            fails_on_data_loss=options.fails_on_data_loss,
            if_recreated="Rebuild the table (--rebuild), or use another one",
        )

    def dry_run(self) -> JobReport:
        state = self._table.load()
        span = self._plan(state)
        rows = self._rows(state)
        settings = {} if state is None else state.settings
        opened_evolution(rows, settings, self._options.choice, widens=self._widens)
        return _report(span, is_dry_run=True, problems=self._options.target.obstacles())

    def run(self, spark: "SparkSession", progress: JobProgress, stop: threading.Event) -> JobReport:
        first = self._take_in(spark, progress)
        starts, last = first.starts, first
        while self._options.follow_s is not None and not stop.is_set():
            began_s = time.monotonic()
            last = self._take_in(spark, progress)
            starts = {**last.starts, **starts}
            stop.wait(max(0.0, self._options.follow_s - (time.monotonic() - began_s)))
        self._maybe_keep_up(is_last=True)
        return _report(replace(last, starts=starts), **self._totals)

    def _take_in(self, spark: "SparkSession", progress: JobProgress) -> TopicSpan:
        """Fold what is new into the table, as one commit; return what that was."""
        state = self._table.load()
        span = self._plan(state)
        if span.count or (self._is_rebuild and state is not None):
            self._count(self._fold(spark, progress, state, span))
            self._is_rebuild = False
            self._maybe_keep_up()
        else:
            self._table.settle()
        return span

    def _count(self, counts: Mapping[str, int]) -> None:
        for name, count in {**counts, "commits": 1}.items():
            self._totals[name] = self._totals.get(name, 0) + count
        self._since_upkeep += 1

    def _maybe_keep_up(self, *, is_last: bool = False) -> None:
        policy = self._options.upkeep
        if policy is None or not (is_last or self._since_upkeep >= self._options.upkeep_commits):
            return
        self._since_upkeep = 0
        # A merged file would not be the file of one bucket.
        for name, count in keep_up(self._table, replace(policy, small_bytes=0)).items():
            self._totals[name] = self._totals.get(name, 0) + count

    def _fold(
        self,
        spark: "SparkSession",
        progress: JobProgress,
        state: TableState | None,
        span: TopicSpan,
    ) -> dict[str, int]:
        from pyspark import StorageLevel

        rows = self._rows(state)
        buckets = int(self._settings(state, rows)[BUCKETS_SETTING])
        records = narrowed(span.load(spark, _READ), span.count, "partition", "key")
        fresh = _bucketed(transform(records), buckets)
        fresh = fresh.persist(StorageLevel.MEMORY_AND_DISK)
        run_id = uuid.uuid4().hex
        try:
            with progress.step("reading the log"):
                counts = fresh.groupBy(_BUCKET).count().collect()
                rows = self._with_schemas(fresh, rows, state)
            settings = self._settings(state, rows)
            touched = {row[_BUCKET]: row["count"] for row in counts}
            replaced = self._replaced(touched)
            with progress.step(f"writing {self._table.name}"):
                written = self._write(spark, fresh, replaced, buckets, rows.form, run_id)
            held = None if self._is_rebuild else state
            self._table.commit(
                span.state(held, settings),
                self._schema,
                run_id=run_id,
                added=written,
                removed=replaced,
            )
        finally:
            fresh.unpersist()
            self._table.discard(run_id)
        return {
            "offsets": span.count,
            "keys_changed": sum(touched.values()),
            "rows_written": sum(file.rows for file in written),
            "files": len(written),
        }

    def _rows(self, state: TableState | None) -> TableRows:
        """How values are decoded: as the table says, or again in a rebuild of a Parquet table."""
        choice = self._options.choice
        is_kept = state is not None and state.offsets
        if not is_kept:
            return new_rows(choice, list)
        assert state is not None
        is_parquet = self._options.target.format is TableFormat.PARQUET
        if self._is_rebuild and is_parquet and choice.value.is_given:
            return new_rows(choice, list)
        try:
            return kept_rows(self._table.name, state.settings, choice, widens=self._widens)
        except ConfigError as error:
            rule = "rebuild it" if is_parquet else "use another table"
            raise ConfigError(error.key, error.value, f"{error.reason}; {rule}") from error

    def _settings(self, state: TableState | None, rows: TableRows) -> dict[str, str]:
        is_kept = state is not None and state.offsets and not self._is_rebuild
        buckets = str(self._options.buckets)
        if is_kept:
            assert state is not None
            buckets = state.settings[BUCKETS_SETTING]
        return {BUCKETS_SETTING: buckets, **rows.settings()}

    def _with_schemas(
        self, fresh: "DataFrame", rows: TableRows, state: TableState | None
    ) -> TableRows:
        """The rows with the schemas that new values, or those of the table, refer to."""
        choice = self._options.choice
        settings = {} if state is None else state.settings
        rows, evolution = opened_evolution(rows, settings, choice, widens=self._widens)
        if not rows.form.value.is_framed or rows.form.value.encoding is Encoding.JSON:
            return rows
        framed = fresh.where("length(value) >= 5 AND substring(value, 1, 1) = X'00'")
        found = framed.selectExpr(f"{_ID} AS id").distinct().collect()
        ids = frozenset(int(row["id"]) for row in found)
        return replace(rows, form=evolution.with_ids(rows.form, {"value": ids}))

    def _replaced(self, touched: Mapping[int, int]) -> list[str]:
        """The files whose rows this run rewrites: all of them in a rebuild."""
        files = self._table.files()
        if self._is_rebuild:
            return files
        return [path for path in files if _bucket_of(path) in touched]

    def _write(
        self,
        spark: "SparkSession",
        fresh: "DataFrame",
        replaced: list[str],
        buckets: int,
        form: RowFormat,
        run_id: str,
    ) -> list[WrittenFile]:
        from cordwood.spark.tables.lake_files import (
            FILE_SCHEMA,
            FileKind,
            LakeWriter,
            collect_files,
            table_schema,
        )

        rows = fresh
        if replaced and not self._is_rebuild:
            before = _bucketed(read_files(spark, replaced).select(*_READ), buckets)
            rows = _bucketed(
                transform(fresh.drop(_BUCKET).unionByName(before.drop(_BUCKET))), buckets
            )
        rows = _decoded(rows.where("value IS NOT NULL"), form)
        self._schema = table_schema(rows.drop(_BUCKET).schema)
        kind = FileKind(name="state", directory=self._table.staging(run_id), schema=self._schema)

        def write(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            at, writer = -1, None
            for batch in batches:
                for bucket, part in _by_bucket(batch):
                    if writer is None or bucket != at:  # rows come bucket by bucket
                        if writer is not None:
                            yield writer.finish()
                        # One file of any size: the name of the file identifies the bucket.
                        at = bucket
                        writer = LakeWriter(kind, f"bucket-{bucket:05d}", file_bytes=1 << 62)
                    writer.write(part)
            if writer is not None:
                yield writer.finish()

        placed = rows.repartitionById(buckets, rows[_BUCKET]).sortWithinPartitions(
            _BUCKET, "partition", "key"
        )
        return collect_files(placed.mapInArrow(write, FILE_SCHEMA)).get("state", [])


def _bucketed(df: "DataFrame", buckets: int) -> "DataFrame":
    from pyspark.sql import functions as fn

    hashed = fn.pmod(fn.xxhash64("key"), fn.lit(buckets)).cast("int")
    return df.withColumn(_BUCKET, hashed)


def _bucket_of(path: str) -> int:
    found = _NAME.fullmatch(path.rpartition("/")[2])
    if found is None:
        raise ConfigError("table", path, "is not a file of a materialized table")
    return int(found[1])


def _decoded(df: "DataFrame", form: RowFormat) -> "DataFrame":
    """The rows with their decoded values; without those whose change is a deletion."""
    if not form.value.is_typed or (form.value.is_framed and form.value.schema is None):
        return df
    found = decoded_column(df, form, into=DECODED, rescued=_RESCUED)
    if form.is_debezium:
        is_deleted = f"coalesce({DECODED}.op = 'd', false)"
        found = found.where(f"NOT {is_deleted}").withColumn(DECODED, found[f"{DECODED}.after"])
    return found.select(*_READ, DECODED, _BUCKET)


def _by_bucket(batch: "pa.RecordBatch") -> Iterator[tuple[int, "pa.RecordBatch"]]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    for bucket in np.unique(batch.column(_BUCKET).to_numpy()):
        number = int(bucket)
        yield number, batch.filter(pc.equal(batch.column(_BUCKET), pa.scalar(number, pa.int32())))


def _report(
    span: TopicSpan, *, is_dry_run: bool = False, problems: tuple[str, ...] = (), **totals: Any
) -> JobReport:
    return JobReport(
        problems=problems,
        job="materialize",
        rows=span.rows(),
        totals={"offsets": span.count, **totals},
        is_dry_run=is_dry_run,
    )
