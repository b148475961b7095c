"""The cost of a micro-batch with almost no work."""

import shutil
import time
from collections.abc import Iterable, Mapping
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from bench.broker_stage import figure_row
from bench.measure import Context, Row, Target, measure_in_turns, samples
from bench.spark_log import LogShape
from bench.spark_stage import CORDWOOD, KAFKA, SparkStage
from bench.workload import TOPIC, fresh_path

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

RATE: Final = "rate source"
_ROWS: Final = 20  # in a micro-batch
_ABOVE_RATE_MS: Final = 100.0
_OF_KAFKA: Final = 1.0  # no slower than Spark's own source
_PATIENCE_S: Final = 180.0
_LOOK_S: Final = 0.5  # querying the progress costs the JVM as much as a trigger


def trigger_rows(context: Context, stage: SparkStage) -> list[Row]:
    """The median duration of consecutive triggers, and how much ours exceeds Spark's."""
    spark = stage.spark(context)
    triggers = context.pick(40, 12)
    # Enough for every run; each run starts a new stream.
    log = stage.log(
        context, LogShape(value_size=100, rows=_ROWS * triggers * 2, keys=_ROWS, name="trigger")
    )
    options = {
        "subscribe": TOPIC,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(_ROWS),
    }
    ours = spark.readStream.format("cordwood").options(**options).load(str(log.path))
    rate = spark.readStream.format("rate-micro-batch").option("rowsPerBatch", _ROWS).load()
    with stage.kafka(context, log) as servers:
        streams = {CORDWOOD: ours, RATE: rate}
        if servers is not None:
            reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers)
            streams[KAFKA] = reader.options(**options).load()
        figures = measure_in_turns(
            {
                name: partial(_trigger_ms, context, stream, triggers)
                for name, stream in streams.items()
            },
            runs=context.runs,
        )
    stage.drop(log)
    title = f"streaming trigger of {_ROWS} rows"
    note = f"median of {triggers} triggers to noop, one behind the other, checkpoint on disk"
    above = [
        our_ms - rate_ms for our_ms, rate_ms in zip(figures[CORDWOOD], figures[RATE], strict=True)
    ]
    beside_kafka = [
        figure_row(
            f"{title}, beside Kafka",
            "-",
            "ms",
            {name: figures[name] for name in (CORDWOOD, KAFKA)},
            judge=KAFKA,
            ratio=_OF_KAFKA,
            is_lower_better=True,
        )
        for _ in range(KAFKA in figures)
    ]
    return [
        *beside_kafka,
        figure_row(
            title,
            "-",
            "ms",
            figures,
            judge=RATE,
            is_lower_better=True,
            note=stage.note(note),
        ),
        Row(
            title=f"{title}, above the rate source's",
            durability="-",
            unit="ms",
            cordwood=samples(CORDWOOD, above),
            target=Target(bound=_ABOVE_RATE_MS),
            is_lower_better=True,
            note="rate-micro-batch, which has rows for every trigger, as ours",
        ),
    ]


def _trigger_ms(context: Context, stream: "DataFrame", triggers: int) -> float:
    """One new query. The first triggers, which start workers, do not count."""
    checkpoint = fresh_path(context.directory, "checkpoint")
    skipped = triggers // 4
    query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint)).start()
    try:
        deadline = time.monotonic() + _PATIENCE_S
        while len(found := trigger_durations_ms(query.recentProgress)) < skipped + triggers:
            if not query.isActive or time.monotonic() > deadline:
                reason = query.exception() or "timeout"
                raise RuntimeError(f"a stream stopped after {len(found)} triggers: {reason}")
            time.sleep(_LOOK_S)
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)
    return median(found[skipped : skipped + triggers])


def trigger_durations_ms(progress: Iterable[Mapping[str, Any]]) -> list[float]:
    """The durations of the triggers with rows."""
    return [float(p["durationMs"]["triggerExecution"]) for p in progress if p["numInputRows"]]
