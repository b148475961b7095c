"""`ingest`: write anything that Spark can read into a topic, as a batch or as a stream.

    batch     the present files, or a JDBC table; published as one
    stream    files as they arrive, another topic, any streaming source; exactly once, by the
              checkpoint. Ends when it has caught up, or continues

SQL expressions over the columns of the source make the columns of the record. If the job runs
twice, a stream continues at its checkpoint. A batch of files is identified by the names, sizes and
times of the files and is written once. No other source can be identified, so such a run needs a
name.
"""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from cordwood.errors import ConfigError
from cordwood.spark.jobs.job_progress import JobProgress, Report, report_nothing
from cordwood.spark.jobs.job_report import JobReport
from cordwood.spark.jobs.json_values import parse_schema
from cordwood.spark.jobs.topic_target import TopicTarget, name_of_run
from cordwood.value_class import dataclass, field

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FILE_FORMATS: Final = ("avro", "csv", "json", "orc", "parquet", "text", "xml")


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestColumns:
    """The parts of a record, as SQL expressions over the columns of the source.

    value      text, bytes, or anything else, which becomes JSON; None: the whole row as JSON
    timestamp  a timestamp, text that is one, or a number of milliseconds
    """

    key: str | None = None
    value: str | None = None
    timestamp: str | None = None
    partition: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestOptions:
    """Source and target.

    run_id       the name of a batch run; each name is written once
    checkpoint   where a stream keeps its progress; None for a batch
    interval     how often a continuing stream polls, as in "10 seconds"; None: it ends when it
                 has caught up
    """

    source: str
    target: TopicTarget
    path: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    schema: str | None = None
    columns: IngestColumns = field(default_factory=IngestColumns)
    run_id: str | None = None
    checkpoint: str | None = None
    interval: str | None = None
    is_dry_run: bool = False

    def __post_init__(self) -> None:
        if self.interval is not None and self.checkpoint is None:
            raise ConfigError("interval", self.interval, "applies to streams; set a checkpoint too")
        if self.run_id is not None and self.checkpoint is not None:
            raise ConfigError("run id", self.run_id, "a stream has a checkpoint instead")
        is_nameless = self.run_id is None and self.checkpoint is None
        if is_nameless and self.source not in FILE_FORMATS:
            raise ConfigError(
                "run id",
                "",
                f"must be given for {self.source}, so that running it twice writes once",
            )


def transform(df: "DataFrame", columns: IngestColumns) -> "DataFrame":
    """The columns that the sink of `format("cordwood")` takes."""
    from pyspark.sql import functions as fn

    value = fn.to_json(fn.struct(*df.columns)) if columns.value is None else None
    chosen = {"value": value if value is not None else _bytes(df, columns.value or "")}
    if columns.key is not None:
        chosen["key"] = _bytes(df, columns.key)
    if columns.timestamp is not None:
        chosen["timestamp"] = _timestamp(df, columns.timestamp)
    if columns.partition is not None:
        chosen["partition"] = fn.expr(columns.partition).cast("int")
    if columns.headers:
        chosen["headers"] = fn.array(
            *(
                fn.struct(fn.lit(name).alias("key"), _bytes(df, text).cast("binary").alias("value"))
                for name, text in columns.headers.items()
            )
        )
    return df.select(*(column.alias(name) for name, column in chosen.items()))


def _bytes(df: "DataFrame", expression: str) -> "Column":
    """Text and bytes unchanged, objects as JSON, everything else as text."""
    from pyspark.sql import functions as fn
    from pyspark.sql.types import ArrayType, BinaryType, MapType, StringType, StructType

    kind = _type_of(df, expression)
    column = fn.expr(expression)
    if isinstance(kind, (StructType, MapType, ArrayType)):
        return fn.to_json(column)
    return column if isinstance(kind, (StringType, BinaryType)) else column.cast("string")


def _timestamp(df: "DataFrame", expression: str) -> "Column":
    from pyspark.sql import functions as fn
    from pyspark.sql.types import IntegralType

    column = fn.expr(expression)
    if isinstance(_type_of(df, expression), IntegralType):
        return fn.timestamp_millis(column)
    return column.cast("timestamp")


def _type_of(df: "DataFrame", expression: str) -> Any:
    return df.selectExpr(f"({expression}) AS found").schema["found"].dataType


def run_ingest(
    spark: "SparkSession | None", options: IngestOptions, report: Report = report_nothing
) -> JobReport:
    """Run the job. A dry run checks source, columns and target, and writes nothing."""
    assert spark is not None, "a session is needed, for a dry run too"
    df = _load(spark, options)
    rows = transform(df, options.columns)
    options.target.check()
    if options.is_dry_run:
        return _planned(df, rows, options)
    before = options.target.ends()
    progress = JobProgress(spark, report)
    if options.checkpoint is not None:
        with progress.step(f"streaming to {options.target.topic}"):
            totals = _run_stream(rows, options)
        return JobReport(job="ingest", rows=options.target.grown_since(before), totals=totals)
    application = _application(df, options)
    if options.target.was_written(application):
        return JobReport(
            job="ingest", totals={"outcome": "was already written", "run": application}
        )
    with progress.step(f"writing to {options.target.topic}"):
        options.target.write(rows, application=application)
    return JobReport(
        job="ingest",
        rows=options.target.grown_since(before),
        totals={"outcome": "done", "run": application},
    )


def _planned(df: "DataFrame", rows: "DataFrame", options: IngestOptions) -> JobReport:
    """What a run would write, and whether it would."""
    fields = rows.schema.fields
    totals: dict[str, Any] = {"outcome": "would be done"}
    if options.checkpoint is None:
        totals["run"] = _application(df, options)
        if options.target.was_written(totals["run"]):
            totals["outcome"] = "was already written"
    return JobReport(
        job="ingest",
        rows=tuple({"column": f.name, "type": f.dataType.simpleString()} for f in fields),
        totals=totals,
        is_dry_run=True,
    )


def _load(spark: "SparkSession", options: IngestOptions) -> "DataFrame":
    is_stream = options.checkpoint is not None
    reader: Any = spark.readStream if is_stream else spark.read
    reader = reader.format(options.source).options(**options.options)
    if options.schema is not None:
        reader = reader.schema(parse_schema(options.schema))
    elif is_stream and options.source in FILE_FORMATS and options.source != "text":
        reader = reader.schema(_inferred(spark, options))
    found: DataFrame = reader.load() if options.path is None else reader.load(options.path)
    return found


def _inferred(spark: "SparkSession", options: IngestOptions) -> Any:
    """A stream of files needs a schema: that of the present files."""
    reader = spark.read.format(options.source).options(**options.options)
    return (reader.load() if options.path is None else reader.load(options.path)).schema


def _application(df: "DataFrame", options: IngestOptions) -> str:
    """The name of a batch run: the given one, or one derived from its files."""
    if options.run_id is not None:
        return f"ingest {options.run_id}"
    columns = options.columns
    return name_of_run(
        "ingest",
        {
            "files": sorted(_described(path) for path in df.inputFiles()),
            "options": dict(options.options),
            "topic": options.target.topic,
            "columns": [
                columns.key,
                columns.value,
                columns.timestamp,
                columns.partition,
                dict(columns.headers),
            ],
        },
    )


def _described(url: str) -> list[Any]:
    """A file's name, size and time; for a remote file only its name."""
    from cordwood.spark.sink.sink_options import plain_path

    path = plain_path(url)
    try:
        found = os.stat(path)
    except OSError:
        return [url]
    return [path, found.st_size, found.st_mtime_ns]


def _run_stream(rows: "DataFrame", options: IngestOptions) -> dict[str, Any]:
    writer = (
        rows.writeStream.format("cordwood")
        .options(**options.target.options())
        .option("checkpointLocation", options.checkpoint or "")
    )
    writer = (
        writer.trigger(availableNow=True)
        if options.interval is None
        else writer.trigger(processingTime=options.interval)
    )
    query: StreamingQuery = writer.start()
    try:
        query.awaitTermination()
    finally:
        query.stop()
    batches = [progress for progress in query.recentProgress if progress["numInputRows"]]
    return {
        "records": sum(int(progress["numInputRows"]) for progress in batches),
        "batches": len(batches),
    }
