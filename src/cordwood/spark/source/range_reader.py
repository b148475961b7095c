"""The executor's half of a read: one range of offsets, from the files to Arrow record batches.

The log may change under it. Retention takes records away: that is reported. Compaction replaces
segments: what is left is read, and is enough, see `compaction_guard`. A topic that was deleted
and made anew under its name is noticed by its id, at the start and again at the end, before the
last rows are handed over: so no row of another topic gets into a result.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import pyarrow as pa

from cordwood.errors import CorruptSegmentError, OffsetOutOfRangeError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import RecordRun
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.record_walk import read_runs
from cordwood.log.rules.isolation import READ_UNCOMMITTED, Isolation
from cordwood.quantities import Offset
from cordwood.spark.source.arrow_rows import ArrowRows
from cordwood.spark.source.data_loss import LossPolicy
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.planning import OffsetRange
from cordwood.spark.source.record_key import rows_of_key


@dataclass(frozen=True, slots=True, kw_only=True)
class RangeReader:
    """How ranges are read. Pickled to executors: holds values only."""

    columns: tuple[str, ...]
    key: bytes | None
    loss: LossPolicy
    isolation: Isolation = READ_UNCOMMITTED

    def read(self, task: OffsetRange) -> Iterator[pa.RecordBatch]:
        """The rows of `task`, in offset order."""
        place = task.place
        with place.open() as log:
            if log is None:
                self._report(place, "was deleted or recreated since the query was planned")
                return
            held: pa.RecordBatch | None = None
            for batch in self._batches(log, task):
                if held is not None:
                    yield held
                held = batch
            if place.current_topic_id() != place.topic_id:
                # Rows of two topics may be mixed by now, which no policy makes right.
                LossPolicy(fails=True).report(
                    place.topic, place.partition, "was deleted or recreated while it was read"
                )
            if task.guard is not None and not task.guard.holds(log):
                self._report(
                    place,
                    f"was compacted past offset {task.guard.end} while a query read it up to "
                    "there: keys may be missing whose newer records came later; load again",
                )
            if held is not None:
                yield held

    def _report(self, place: LogPlace, what: str, cause: Exception | None = None) -> None:
        self.loss.report(place.topic, place.partition, what, cause=cause)

    def _batches(self, log: LogReader, task: OffsetRange) -> Iterator[pa.RecordBatch]:
        rows = ArrowRows(self.columns, topic=task.place.topic, partition=task.place.partition)
        for run in self._runs(log, task):
            chosen = run if self.key is None else rows_of_key(run, self.key)
            if chosen is not None:
                yield from rows.add(chosen)
        yield from rows.rest()

    def _runs(self, log: LogReader, task: OffsetRange) -> Iterator[RecordRun]:
        """The records of the range, as many of them as there are and as the policy wants."""
        start, stop = self._readable(log, task, task.start)
        while start < stop:
            try:
                for run in self._runs_between(log, start, stop):
                    yield run
                    last = (run.end - 1) * tables.RECORD_ROW + tables.R_OFFSET
                    start = run.table[last] + 1
                if self.key is not None:
                    self._readable(log, task, start)  # the lookup passes over what was deleted
                return
            except OffsetOutOfRangeError:
                start, stop = self._readable(log, task, start)
            except FileNotFoundError as error:
                self._report(task.place, "was deleted while it was read", error)
                return
            except CorruptSegmentError as error:
                if not task.place.allows_gaps and task.place.has_gaps_now():
                    yield from self._compacted_runs(task, start)
                    return
                self._report(task.place, str(error), error)
                start = stop if error.next_offset is None else error.next_offset

    def _compacted_runs(self, task: OffsetRange, start: int) -> Iterator[RecordRun]:
        """The rest of a range, of a topic that is compacted only since it was planned."""
        place = replace(task.place, allows_gaps=True)
        with place.open() as log:
            if log is None:
                self._report(place, "was deleted or recreated while it was read")
                return
            yield from self._runs(log, replace(task, place=place, start=start))

    def _runs_between(self, log: LogReader, start: int, stop: int) -> Iterator[RecordRun]:
        if self.key is None:
            return read_runs(log.source, start, stop, isolation=self.isolation)
        return log.keys.runs(self.key, Offset(start), Offset(stop))

    def _readable(self, log: LogReader, task: OffsetRange, start: int) -> tuple[int, int]:
        """What is there of [start, task.stop); reports what is not."""
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
                f"the log ends at {view.high_watermark}, and reached {task.stop} "
                "when the query was planned",
            )
        return max(start, view.start), min(task.stop, view.high_watermark)
