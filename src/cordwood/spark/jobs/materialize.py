"""`materialize`: fold a changelog into a table with the current value of each key.

A tombstone removes its key. A run reads the new records and rewrites only the parts of the table
that contain their keys: the hash of the key divides the table into buckets of one file each. The
table stores its offsets as an exported table does, in the same commit.

A rebuild from the beginning of the log gives the same table, row for row: the row of a key depends
only on its newest record, which compaction keeps. Keys are followed within their partition, as
everywhere in Kafka; records without a key are ignored.
"""

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.json_values import DECODED, REASON, decode_values, parse_schema
from cordwood.spark.jobs.shuffle_width import narrowed
from cordwood.spark.jobs.tables.lake_table import TableState, WrittenFile
from cordwood.spark.jobs.tables.lake_target import LakeTarget, TableFormat, read_files
from cordwood.spark.jobs.topic_span import TopicSpan, plan_span
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

BUCKETS: Final = 16
BUCKETS_MAX: Final = 10_000

_READ: Final = ("key", "value", "partition", "offset", "timestamp")
_BUCKET: Final = "__bucket"
_BUCKETS: Final = "buckets"
_VALUE_SCHEMA: Final = "value_schema"
_NAME: Final = re.compile(r"bucket-([0-9]{5})-[0-9a-f]{32}\.parquet")


@dataclass(frozen=True, slots=True, kw_only=True)
class MaterializeOptions:
    """Source and target. With a schema there is also a column `decoded`, null if it does not fit.

    buckets      number of parts of a new table; more for larger ones
    is_rebuild   start again from the beginning of the log
    """

    paths: tuple[str, ...]
    topic: str
    target: LakeTarget
    value_schema: str | None = None
    buckets: int = BUCKETS
    is_rebuild: bool = False
    fails_on_data_loss: bool = True
    is_dry_run: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.buckets <= BUCKETS_MAX:
            raise ConfigError("buckets", self.buckets, f"must be 1 to {BUCKETS_MAX}")


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
    spark: "SparkSession | None", options: MaterializeOptions, report: Report = report_nothing
) -> JobReport:
    """Bring the table up to date, or report what that would do."""
    job = _MaterializeJob(options)
    if options.is_dry_run:
        return job.dry_run()
    assert spark is not None, "a session is needed for all but a dry run"
    return job.run(spark, JobProgress(spark, report))


class _MaterializeJob:
    def __init__(self, options: MaterializeOptions) -> None:
        self._options = options
        self._table = options.target.open(replaces=True)

    def _plan(self, state: TableState | None) -> TopicSpan:
        options = self._options
        held = None if options.is_rebuild else state
        if held is not None and any(topic != options.topic for topic, _ in held.offsets):
            topics = ", ".join(sorted({topic for topic, _ in held.offsets}))
            raise ConfigError("topic", options.topic, f"{self._table.name} is made of {topics}")
        return plan_span(
            options.paths,
            [options.topic],
            held,
            table=self._table.name,
            fails_on_data_loss=options.fails_on_data_loss,
        )

    def dry_run(self) -> JobReport:
        return _report(self._plan(self._table.load()), is_dry_run=True)

    def run(self, spark: "SparkSession", progress: JobProgress) -> JobReport:
        from pyspark import StorageLevel

        state = self._table.load()
        span = self._plan(state)
        is_emptied = self._options.is_rebuild and state is not None
        if not span.count and not is_emptied:
            self._table.settle()
            return _report(span)
        settings = self._settings(state)
        buckets = int(settings[_BUCKETS])
        rows = narrowed(span.load(spark, _READ), span.count, "partition", "key")
        fresh = _bucketed(transform(rows), buckets)
        fresh = fresh.persist(StorageLevel.MEMORY_AND_DISK)
        run_id = uuid.uuid4().hex
        try:
            with progress.step("reading the log"):
                counts = fresh.groupBy(_BUCKET).count().collect()
            touched = {row[_BUCKET]: row["count"] for row in counts}
            replaced = self._replaced(touched)
            with progress.step(f"writing {self._table.name}"):
                written = self._write(spark, fresh, replaced, settings, run_id)
            held = None if self._options.is_rebuild else state
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
        return _report(
            span,
            keys_changed=sum(touched.values()),
            rows_written=sum(file.rows for file in written),
            files=len(written),
        )

    def _settings(self, state: TableState | None) -> dict[str, str]:
        """The settings of the table; for a rebuild those of the options, except the schema."""
        wanted = self._options.value_schema
        kept = None if state is None else state.settings.get(_VALUE_SCHEMA)
        schema = kept if wanted is None else parse_schema(wanted).json()
        if state is not None and state.offsets:
            self._check_schema(wanted, is_other=schema != kept)
            if not self._options.is_rebuild:
                return dict(state.settings)
        settings = {_BUCKETS: str(self._options.buckets)}
        return settings if schema is None else {**settings, _VALUE_SCHEMA: schema}

    def _check_schema(self, wanted: str | None, *, is_other: bool) -> None:
        """Refuse new columns, except in a rebuild of a Parquet table."""
        is_parquet = self._options.target.format is TableFormat.PARQUET
        if is_other and not (self._options.is_rebuild and is_parquet):
            rule = "rebuild it" if is_parquet else "use another table"
            raise ConfigError(
                "value schema", wanted, f"{self._table.name} was made with another: {rule}"
            )

    def _replaced(self, touched: Mapping[int, int]) -> list[str]:
        """The files whose rows this run rewrites: all of them in a rebuild."""
        files = self._table.files()
        if self._options.is_rebuild:
            return files
        return [path for path in files if _bucket_of(path) in touched]

    def _write(
        self,
        spark: "SparkSession",
        fresh: "DataFrame",
        replaced: list[str],
        settings: Mapping[str, str],
        run_id: str,
    ) -> list[WrittenFile]:
        from cordwood.spark.jobs.tables.lake_files import (
            FILE_SCHEMA,
            FileKind,
            LakeWriter,
            collect_files,
            table_schema,
        )

        buckets = int(settings[_BUCKETS])
        rows = fresh
        if replaced and not self._options.is_rebuild:
            before = _bucketed(read_files(spark, replaced).select(*_READ), buckets)
            rows = _bucketed(
                transform(fresh.drop(_BUCKET).unionByName(before.drop(_BUCKET))), buckets
            )
        rows = _decoded(rows.where("value IS NOT NULL"), settings.get(_VALUE_SCHEMA))
        self._schema = table_schema(rows.drop(_BUCKET).schema)
        kind = FileKind(name="state", directory=self._table.staging(run_id), schema=self._schema)

        def write(batches: Iterable["pa.RecordBatch"]) -> Iterator["pa.RecordBatch"]:
            writers: dict[int, LakeWriter] = {}
            for batch in batches:
                for bucket, part in _by_bucket(batch):
                    if bucket not in writers:
                        # One file of any size: the name of the file identifies the bucket.
                        writers[bucket] = LakeWriter(
                            kind, f"bucket-{bucket:05d}", file_bytes=1 << 62
                        )
                    writers[bucket].write(part)
            for writer in writers.values():
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


def _decoded(df: "DataFrame", schema: str | None) -> "DataFrame":
    if schema is None:
        return df
    return decode_values(df, parse_schema(schema)).drop(REASON).select(*_READ, DECODED, _BUCKET)


def _by_bucket(batch: "pa.RecordBatch") -> Iterator[tuple[int, "pa.RecordBatch"]]:
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    for bucket in np.unique(batch.column(_BUCKET).to_numpy()):
        number = int(bucket)
        yield number, batch.filter(pc.equal(batch.column(_BUCKET), pa.scalar(number, pa.int32())))


def _report(span: TopicSpan, *, is_dry_run: bool = False, **totals: Any) -> JobReport:
    return JobReport(
        job="materialize",
        rows=span.rows(),
        totals={"offsets": span.count, **totals},
        is_dry_run=is_dry_run,
    )
