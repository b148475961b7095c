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
from cordwood.log.reading.record_walk import plan_read, planned_runs
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation, is_committed_only
from cordwood.quantities import Offset
from cordwood.spark.source.arrow_rows import ArrowRows
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.record_key import rows_of_key
from cordwood.spark.where.chosen_rows import NewerBatches, rows_where
from cordwood.spark.where.condition import (
    ALWAYS,
    Condition,
    earliest_us,
    only_key,
    spans_suffice,
    within_partition,
)
from cordwood.spark.worker_heap import settle_heap
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
        logger.warning(
            "%s: %s; the query continues without the lost data, because failOnDataLoss=false",
            error.name,
            what,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReader:
    """Reads ranges as the query asks. Spark pickles it to executors, so it holds only values.

    Ranges lie in the spans of `where`: see `pruning`.
    """

    columns: tuple[str, ...]
    key: bytes | None
    loss: LossPolicy
    isolation: Isolation = READ_UNCOMMITTED
    where: Condition = ALWAYS

    def read(self, task: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The rows of `task`, in offset order; the last batch comes after the final checks."""
        settle_heap()
        with task.place.open() as log:
            yield from self.read_opened(log, task)

    def read_opened(self, log: LogReader | None, task: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The rows of `task`, from its place as it was opened."""
        place = task.place
        if log is None:
            self.report(place, "was deleted or recreated since the query was planned")
            return
        rows = ArrowRows(self.columns, topic=place.topic, partition=place.partition)
        held: list[pa.RecordBatch] = []
        for run in self.runs(log, task):
            for batch in rows.add(run):
                yield from held
                held = [batch]
        rest = rows.rest()
        if rest:
            yield from held
            held = rest
        self.check_unchanged(log, task)
        yield from held

    def check_unchanged(self, log: LogReader, task: OffsetRange) -> None:
        place = task.place
        if place.current_topic_id() != place.topic_id:
            # Rows of two topics may be mixed by now; no policy may accept that.
            LossPolicy(fails=True).report(
                place.topic, place.partition, "was deleted or recreated while it was read"
            )
        if task.guard is not None and not task.guard.holds(log):
            self.report(
                place,
                f"was compacted past offset {task.guard.end} while a query read it up to that "
                "offset: keys whose newer records came later may be missing; load again",
            )

    def report(self, place: LogPlace, what: str, cause: Exception | None = None) -> None:
        self.loss.report(place.topic, place.partition, what, cause=cause)

    def runs(self, log: LogReader, task: OffsetRange) -> Iterator[RecordRun]:
        """The records of the range that exist and that the query wants."""
        wanted = _Wanted.of(self, task.place.partition)
        start, stop = self.readable(log, task, task.start)
        with ExitStack() as reopened:
            while start < stop:
                try:
                    for run in wanted.runs(log, start, stop):
                        chosen = wanted.chosen(run)
                        last = run.table[(run.end - 1) * tables.RECORD_ROW + tables.R_OFFSET]
                        if chosen is not None:
                            yield chosen
                        start = last + 1
                    if wanted.key is not None:
                        self.readable(log, task, start)  # the lookup skips deleted records
                    return
                except OffsetOutOfRangeError:
                    start, stop = self.readable(log, task, start)
                except (FileNotFoundError, TopicDeletedError) as error:
                    self.report(task.place, "was deleted while it was read", error)
                    return
                except CorruptSegmentError as error:
                    if not task.place.allows_gaps and task.place.has_gaps_now():
                        # The topic is compacted only since the query was planned.
                        task = replace(task, place=replace(task.place, allows_gaps=True))
                        other = reopened.enter_context(task.place.open())
                        if other is None:
                            self.report(task.place, "was deleted or recreated while it was read")
                            return
                        log = other
                        start, stop = self.readable(log, task, start)
                        continue
                    self.report(task.place, str(error), error)
                    start = stop if error.next_offset is None else error.next_offset

    def readable(self, log: LogReader, task: OffsetRange, start: int) -> tuple[int, int]:
        """The part of [start, task.stop) that exists; reports the rest as lost."""
        view = log.view()
        if start < view.start:
            self.report(
                task.place,
                f"offsets from {start} to {min(view.start, task.stop)} were deleted "
                "since the query was planned",
            )
        if view.high_watermark < task.stop:
            self.report(
                task.place,
                f"ends at offset {view.high_watermark} but reached {task.stop} "
                "when the query was planned",
            )
        return max(start, view.start), min(task.stop, view.high_watermark)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Which records of one partition a query wants, and how they are found.

    key          only records of this key, looked up in the key index; None for all
    condition    what records must match besides, if `is_checked`
    earliest_ms  batches that are older are not parsed; None for all
    """

    key: bytes | None
    condition: Condition
    is_checked: bool
    earliest_ms: int | None
    isolation: Isolation

    @classmethod
    def of(cls, reader: RangeReader, partition: int) -> "_Wanted":
        condition = within_partition(reader.where, partition)
        key = reader.key
        if key is None and not is_committed_only(reader.isolation):
            key = only_key(condition)  # a lookup does not know what is committed
        oldest_us = earliest_us(condition)
        return cls(
            key=key,
            condition=condition,
            is_checked=not spans_suffice(condition),
            earliest_ms=None if oldest_us is None else -(-oldest_us // 1000),
            isolation=reader.isolation,
        )

    def runs(self, log: LogReader, start: int, stop: int) -> Iterator[RecordRun]:
        if self.key is not None:
            return log.keys.runs(self.key, Offset(start), Offset(stop))
        plan = plan_read(log.source, start, stop, self.isolation)
        if self.earliest_ms is not None:
            return planned_runs(
                log.source, plan._replace(hidden=NewerBatches(self.earliest_ms, plan.hidden))
            )
        return planned_runs(log.source, plan)

    def chosen(self, run: RecordRun) -> RecordRun | None:
        found = run if self.key is None else rows_of_key(run, self.key)
        if found is None or not self.is_checked:
            return found
        return rows_where(found, self.condition)
