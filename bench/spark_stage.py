"""The set-up of the Spark suite: one session, logs that are written once, Kafka when needed.

Everything runs on the machine's own cores, as `local[2]`, with a warm page cache. The figure of a
subject is the time of a whole query, including planning: each sample calls `load` again.
"""

import gc
import os
import shutil
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import cordwood.spark
from bench.broker_servers import (
    ROOT,
    BrokerServer,
    CordwoodServer,
    KafkaServer,
    find_kafka,
    running,
)
from bench.broker_stage import figure_row
from bench.measure import Context, Row, measure_in_turns, seconds_of
from bench.process_tree import descendants_cpu_seconds
from bench.spark_kafka_feed import feed_topic
from bench.spark_log import LogShape, SparkLog, write_log
from bench.workload import TOPIC, fresh_path
from interop.kafka_peer import KafkaTools, KafkaUnavailableError, kafka_version
from interop.spark_kafka import find_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

CORDWOOD: Final = "Cordwood"
PARQUET: Final = "Parquet"
KAFKA: Final = "Spark's Kafka source"

WARM_UPS: Final = 12
WARM_UP_S: Final = 3.0
WARMED: Final = f"after {WARM_UPS} warm-ups or {WARM_UP_S:.0f} s of them"

_CORES: Final = 2
_DRIVER_MEMORY: Final = "3g"

Query = Callable[["DataFrame"], object]
Frames = Mapping[str, "Callable[[], DataFrame] | None"]  # None: leave the subject out


def to_noop(frame: "DataFrame") -> None:
    """Produce every row, with all columns, and discard it."""
    frame.write.format("noop").mode("overwrite").save()


class SparkStage:
    """The session of one run of the suite, and the data of its rows.

    The JVM starts at the first row and ends with the context's resources.
    """

    def __init__(self) -> None:
        self._spark: SparkSession | None = None
        self._kafka: KafkaTools | None = None
        self._logs: dict[str, SparkLog] = {}
        self._tables: dict[Path, Path] = {}
        self.kafka_absence = ""  # why Kafka is missing

    def spark(self, context: Context) -> "SparkSession":
        if self._spark is None:
            jars = self._find_kafka(context)
            self._spark = _start(context.directory, jars)
            context.resources.callback(_stop, self._spark)
            context.facts["spark"] = f"{self._spark.version}, local[{_CORES}]"
            context.facts["kafka"] = (
                f"skipped: {self.kafka_absence}" if self.kafka_absence else _kafka_fact(jars)
            )
        return self._spark

    def _find_kafka(self, context: Context) -> list[Path]:
        """The jars of Spark's Kafka source; none if they or Kafka itself are not available."""
        try:
            self._kafka = find_kafka()
            fetched = subprocess.run(
                [ROOT / "script" / "fetch-kafka", "spark"],
                stdout=subprocess.PIPE,
                text=True,
                check=False,
            )
            if fetched.returncode != 0:
                raise KafkaUnavailableError(fetched.stdout.strip() or "script/fetch-kafka failed")
            return find_jars()
        except KafkaUnavailableError as error:
            self._kafka, self.kafka_absence = None, str(error)
            context.say(f"Kafka skipped: {error}")
            return []

    # --- data ---------------------------------------------------------------------------------

    def log(self, context: Context, shape: LogShape) -> SparkLog:
        """The log of that shape, written at the first call."""
        name = repr(shape)
        if name not in self._logs:
            self.spark(context)
            self._logs[name] = write_log(context.directory, shape)
        return self._logs[name]

    def drop(self, log: SparkLog) -> None:
        """Delete the log, which is not read again."""
        self._logs.pop(repr(log.shape), None)
        shutil.rmtree(log.path)

    def table(self, context: Context, log: SparkLog) -> Path:
        """The rows of the log as uncompressed Parquet files with Spark's defaults."""
        if log.path not in self._tables:
            path = fresh_path(context.directory, "parquet")
            rows = cordwood_reader(self.spark(context)).load(str(log.path))
            rows.write.option("compression", "uncompressed").parquet(str(path))
            self._tables[log.path] = path
        return self._tables[log.path]

    @contextmanager
    def kafka(self, context: Context, log: SparkLog) -> Iterator[str | None]:
        """The address of a Kafka with the log's records; None if Kafka is missing."""
        if self._kafka is None:
            yield None
            return
        path = fresh_path(context.directory, "kafka")
        server: BrokerServer = KafkaServer(self._kafka, path)
        try:
            with running(server):
                feed_topic(server.port, log)
                yield f"127.0.0.1:{server.port}"
        finally:
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def brokers(self, context: Context) -> Iterator[list[BrokerServer]]:
        """Our broker and Kafka, both running; none if Kafka or Spark's source for it is missing."""
        if self._kafka is None:
            yield []
            return
        homes = [fresh_path(context.directory, name) for name in ("broker", "kafka")]
        for home in homes:
            home.mkdir(parents=True, exist_ok=True)
        servers: list[BrokerServer] = [CordwoodServer(homes[0]), KafkaServer(self._kafka, homes[1])]
        try:
            with running(servers[0]), running(servers[1]):
                yield servers
        finally:
            for home in homes:
                shutil.rmtree(home, ignore_errors=True)

    def note(self, text: str) -> str:
        return f"{text}; Kafka skipped: {self.kafka_absence}" if self.kafka_absence else text


# --- the same rows in each form -----------------------------------------------------------------


def cordwood_reader(spark: "SparkSession", **options: object) -> "DataFrameReader":
    return spark.read.format("cordwood").options(subscribe=TOPIC, **_texts(options))


def kafka_reader(spark: "SparkSession", servers: str, **options: object) -> "DataFrameReader":
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", servers)
    return reader.options(subscribe=TOPIC, **_texts(options))


def parquet_frame(spark: "SparkSession", path: Path) -> "DataFrame":
    """A Parquet frame with a given schema: otherwise Spark runs a job to find it."""
    from cordwood.spark.source.row_schema import DEFAULT_COLUMNS, row_schema

    return spark.read.schema(row_schema(DEFAULT_COLUMNS)).parquet(str(path))


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """The cost of one query. Processor time includes Spark, its Python workers, and Kafka."""

    seconds: float
    cpu_s: float


def subjects(frames: Frames, query: Query) -> dict[str, Callable[[], Taken]]:
    """The query over each frame; subjects without a frame are left out."""
    return {name: partial(_ask, make, query) for name, make in frames.items() if make is not None}


def timed(
    calls: Mapping[str, Callable[[], object] | None],
) -> dict[str, Callable[[], Taken]]:
    """Each call as a subject; None leaves the subject out."""
    return {name: partial(_time, call) for name, call in calls.items() if call is not None}


def _time(call: Callable[[], object]) -> Taken:
    cpu_s = descendants_cpu_seconds(os.getpid())
    seconds = seconds_of(call)
    return Taken(seconds=seconds, cpu_s=descendants_cpu_seconds(os.getpid()) - cpu_s)


def _ask(make: Callable[[], "DataFrame"], query: Query) -> Taken:
    return _time(lambda: query(make()))


def measure_warm(
    subjects: Mapping[str, Callable[[], Taken]], *, runs: int
) -> dict[str, list[Taken]]:
    """Samples of each subject in turn, after warm-ups in which the JVM compiles what they use.

    A query gets `WARM_UPS` of them, or fewer if they take more than `WARM_UP_S`: a slow query
    repeats its loops often enough in each.
    """
    for subject in subjects.values():
        began = time.monotonic()
        for _ in range(WARM_UPS):
            subject()
            if time.monotonic() - began > WARM_UP_S:
                break
    return measure_in_turns(subjects, runs=runs, warm_up=False)


def seconds_by_name(taken: Mapping[str, Sequence[Taken]]) -> dict[str, list[float]]:
    return {name: [each.seconds for each in every] for name, every in taken.items()}


def cpu_row(title: str, taken: Mapping[str, Sequence[Taken]], rows: int) -> Row:
    """Processor time per million rows; more reliable than time on a shared machine."""
    figures = {name: [each.cpu_s / rows * 1e6 for each in every] for name, every in taken.items()}
    return figure_row(
        f"{title}, processor time", "-", "s/M rows", figures, judge=PARQUET, is_lower_better=True
    )


def _texts(options: Mapping[str, object]) -> dict[str, Any]:
    return {name: str(value) for name, value in options.items()}


# --- the session --------------------------------------------------------------------------------


def _kafka_fact(jars: list[Path]) -> str:
    """The versions of Kafka and of Spark's source for it."""
    source = next(jar.stem for jar in jars if jar.name.startswith("spark-sql-kafka"))
    return f"{kafka_version()} on the same cores, read by {source}"


def _start(directory: Path, jars: list[Path]) -> "SparkSession":
    """A session of `cordwood.spark.session`, with settings that only reduce its output."""
    return cordwood.spark.session(
        "cordwood bench",
        master=f"local[{_CORES}]",
        config={
            "spark.jars": ",".join(map(str, jars)),
            "spark.driver.memory": _DRIVER_MEMORY,
            "spark.ui.enabled": False,
            "spark.ui.showConsoleProgress": False,
            "spark.log.level": "FATAL",  # stopping a stream in the middle is not an error
            "spark.sql.shuffle.partitions": _CORES,
            "spark.sql.session.timeZone": "UTC",
            "spark.sql.warehouse.dir": str(directory / "warehouse"),
            "spark.local.dir": str(directory / "local"),
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
        },
    )


def _stop(spark: "SparkSession") -> None:
    spark.stop()
    with warnings.catch_warnings():
        # The garbage collector closes the sockets to the JVM and warns about it.
        warnings.simplefilter("ignore", ResourceWarning)
        gc.collect()
