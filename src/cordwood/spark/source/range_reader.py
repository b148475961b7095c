"""The executor's half of a read: one range of offsets, from the files to Arrow record batches.

The log may change meanwhile. If retention deletes records, that is reported. If compaction
replaces segments, the records that remain are read, which is enough: see `compaction_guard`. If the
topic was deleted and created again under its name, its id has changed: the id is compared at the
start, and again at the end before the last rows are returned, so a result never contains rows of
another topic.
"""

import logging
from collections.abc import Iterator
from contextlib import ExitStack

import pyarrow as pa

from cordwood.errors import (
    CorruptSegmentError,
    DataLossError,
    OffsetOutOfRangeError,
    TopicDeletedError,
)
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import RecordRun
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.record_walk import read_runs
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation
from cordwood.quantities import Offset
from cordwood.spark.source.arrow_rows import ArrowRows
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.record_key import rows_of_key
from cordwood.value_class import dataclass, replace

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class LossPolicy:
    """What happens if records that a query should read are gone: the option `failOnDataLoss`."""

    fails: bool

    def report(
        self, topic: str, partition: int | None, what: str, *, cause: Exception | None = None
    ) -> None:
        """Fail the query with `DataLossError`, or log a warning and return."""
        error = DataLossError(topic, partition, what)
        if self.fails:
            raise error from cause
        logger.warning("failOnDataLoss=false, so the query continues: %s", error.args[0])


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReader:
    """Reads ranges as the query asks. Spark pickles it to executors, so it holds only values."""

    columns: tuple[str, ...]
    key: bytes | None
    loss: LossPolicy
    isolation: Isolation = READ_UNCOMMITTED

    def read(self, task: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The rows of `task`, in offset order; the last batch comes after the final checks."""
        place = task.place
        with place.open() as log:
            if log is None:
                self._report(place, "was deleted or recreated since the query was planned")
                return
            rows = ArrowRows(self.columns, topic=place.topic, partition=place.partition)
            held: list[pa.RecordBatch] = []
            for run in self._runs(log, task):
                for batch in rows.add(run):
                    yield from held
                    held = [batch]
            rest = rows.rest()
            if rest:
                yield from held
                held = rest
            self._check_unchanged(log, task)
            yield from held

    def _check_unchanged(self, log: LogReader, task: OffsetRange) -> None:
        place = task.place
        if place.current_topic_id() != place.topic_id:
            # Rows of two topics may be mixed by now; no policy may accept that.
            LossPolicy(fails=True).report(
                place.topic, place.partition, "was deleted or recreated while it was read"
            )
        if task.guard is not None and not task.guard.holds(log):
            self._report(
                place,
                f"was compacted past offset {task.guard.end} while a query read it up to that "
                "offset: keys whose newer records came later may be missing; load again",
            )

    def _report(self, place: LogPlace, what: str, cause: Exception | None = None) -> None:
        self.loss.report(place.topic, place.partition, what, cause=cause)

    def _runs(self, log: LogReader, task: OffsetRange) -> Iterator[RecordRun]:
        """The records of the range that exist and that the query wants."""
        start, stop = self._readable(log, task, task.start)
        with ExitStack() as reopened:
            while start < stop:
                try:
                    for run in self._runs_between(log, start, stop):
                        chosen = run if self.key is None else rows_of_key(run, self.key)
                        last = run.table[(run.end - 1) * tables.RECORD_ROW + tables.R_OFFSET]
                        if chosen is not None:
                            yield chosen
                        start = last + 1
                    if self.key is not None:
                        self._readable(log, task, start)  # the lookup skips deleted records
                    return
                except OffsetOutOfRangeError:
                    start, stop = self._readable(log, task, start)
                except (FileNotFoundError, TopicDeletedError) as error:
                    self._report(task.place, "was deleted while it was read", error)
                    return
                except CorruptSegmentError as error:
                    if not task.place.allows_gaps and task.place.has_gaps_now():
                        # The topic is compacted only since the query was planned.
                        task = replace(task, place=replace(task.place, allows_gaps=True))
                        other = reopened.enter_context(task.place.open())
                        if other is None:
                            self._report(task.place, "was deleted or recreated while it was read")
                            return
                        log = other
                        start, stop = self._readable(log, task, start)
                        continue
                    self._report(task.place, str(error), error)
                    start = stop if error.next_offset is None else error.next_offset

    def _runs_between(self, log: LogReader, start: int, stop: int) -> Iterator[RecordRun]:
        if self.key is None:
            return read_runs(log.source, start, stop, isolation=self.isolation)
        return log.keys.runs(self.key, Offset(start), Offset(stop))

    def _readable(self, log: LogReader, task: OffsetRange, start: int) -> tuple[int, int]:
        """The part of [start, task.stop) that exists; reports the rest as lost."""
        view = log.view()
        if start < view.start:
            self._report(
                task.place,
                f"offsets from {start} to {min(view.start, task.stop)} were deleted "
                "since the query was planned",
            )
        if view.high_watermark < task.stop:
            self._report(
                task.place,
                f"ends at offset {view.high_watermark} but reached {task.stop} "
                "when the query was planned",
            )
        return max(start, view.start), min(task.stop, view.high_watermark)
