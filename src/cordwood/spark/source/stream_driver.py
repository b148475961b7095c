"""The driver's view of a stream: its start, the end of a micro-batch, and the tasks.

Each survey is compared with the offsets that the stream has reached:

    a partition is gone            data loss
    a partition is new             read from offset 0; data loss if that was deleted
    the topic has another id       it was recreated: data loss, then read from offset 0
    the log ends before them       data loss, then continue at its end
    another batch is before them   the store was replaced by an older copy: data loss
"""

from collections.abc import Iterator, Mapping

from cordwood.clock import Clock, SystemClock
from cordwood.errors import ConfigError
from cordwood.log.beside.job_traces import JobTracer
from cordwood.spark.source.group_progress import GroupProgress
from cordwood.spark.source.log_extent import offset_behind, size_between
from cordwood.spark.source.opened_source import OpenedSource, open_source
from cordwood.spark.source.planning import OffsetRange, share
from cordwood.spark.source.position_mark import position_mark
from cordwood.spark.source.range_reader import LossPolicy
from cordwood.spark.source.source_options import SourceOptions
from cordwood.spark.source.source_plan import (
    OffsetResolver,
    Span,
    Surveyed,
    check_named,
    plan_ranges,
    pruned,
    survey,
)
from cordwood.spark.source.stream_offsets import StreamOffset
from cordwood.spark.source.topic_choice import TopicPartition
from cordwood.value_class import replace


class StreamDriver:
    """Lives as long as the query runs. For one thread."""

    def __init__(
        self,
        options: SourceOptions,
        source: OpenedSource,
        clock: Clock,
        progress: GroupProgress | None,
        tracer: JobTracer | None = None,
    ) -> None:
        self._options = options
        self._source = source
        self._clock = clock
        self._progress = progress
        self._tracer = tracer
        self._loss = LossPolicy(options.fails_on_data_loss)
        self._initial: StreamOffset | None = None
        self._frozen: Surveyed | None = None
        self._last_batch_s: float | None = None
        self.newest: StreamOffset | None = None  # at the last survey

    @classmethod
    def open(cls, options: SourceOptions, paths: tuple[str, ...]) -> "StreamDriver":
        source = open_source(paths, options.topics.wants)
        progress: GroupProgress | None = None
        if options.group is not None:
            if not source.directories:
                raise ConfigError("group", options.group, "an archive has no group offsets")
            progress = GroupProgress(options.group, source.directories)
        tracer: JobTracer | None = None
        if source.directories:
            tracer = JobTracer(
                source.directories[0], kind="stream", subject=options.topics.in_words
            )
            tracer.start()
        return cls(options, source, SystemClock(), progress, tracer)

    def close(self) -> None:
        if self._tracer is not None:
            self._tracer.end()
        if self._progress is not None:
            self._progress.close()
        self._source.close()

    # --- where it starts ---------------------------------------------------------------------

    def initial(self) -> StreamOffset:
        """Where a new stream begins; every call returns the same."""
        if self._initial is None:
            found = self._frozen or survey(self._source, self._options.isolation)
            check_named(self._source, self._options.topics, found)
            resolver = OffsetResolver(self._options, found, self._clock.now_ms())
            starts = resolver.starts()
            self._initial = StreamOffset(
                positions=starts,
                topic_ids=found.topic_ids,
                is_initial=True,
                marks=_marks_at(starts, found),
            )
        return self._initial

    def freeze(self) -> None:
        """Read up to the present end and no further, for Trigger.AvailableNow."""
        self._frozen = survey(self._source, self._options.isolation)

    # --- how far a micro-batch goes ----------------------------------------------------------

    def latest(self, start: StreamOffset, *, is_limited: bool) -> StreamOffset:
        """The end of the micro-batch that begins at `start`; `start` itself if there is none."""
        if not start.is_initial:
            self.note_done(start)
        found = survey(self._source, self._options.isolation)
        self.newest = StreamOffset(positions=found.ends, topic_ids=found.topic_ids)
        begins = self._begins(start, found)
        ends = self._ends(begins, found)
        if is_limited:
            ends = self._limited(begins, ends, found)
        after = StreamOffset(
            positions=ends,
            topic_ids={t: i for t, i in found.topic_ids.items() if any(p[0] == t for p in ends)},
            first=begins if start.is_initial else None,
            marks=_marks_at(ends, found),
        )
        if after.positions == start.positions and after.topic_ids == start.topic_ids:
            self._finish_if_frozen()
            return start
        return after

    def _begins(self, start: StreamOffset, found: Surveyed) -> dict[TopicPartition, int]:
        """Where to continue in each partition; reports what was lost."""
        recreated = self._recreated(start.topic_ids, found)
        gone = [p for p in sorted(start.positions) if not found.has(p) and p[0] not in recreated]
        for topic, number in gone:
            self._loss.report(
                topic,
                number,
                "the checkpoint has it, and the query does not find it: it was deleted, or the "
                "query now reads other topics and needs another checkpoint",
            )
        wanted = found.partitions
        if self._frozen is not None:
            wanted = [p for p in wanted if self._frozen.has(p) or p in start.positions]
        return {
            partition: self._begin(partition, start, found, is_new=partition[0] in recreated)
            for partition in wanted
        }

    def _recreated(self, ids: Mapping[str, str], found: Surveyed) -> set[str]:
        changed = {topic for topic, now in found.topic_ids.items() if ids.get(topic, now) != now}
        for topic in sorted(changed):
            self._loss.report(
                topic,
                None,
                f"the topic was recreated: its id was {ids[topic]} and is "
                f"{found.topic_ids[topic]}, so the offsets of the checkpoint are not its own",
            )
        return changed

    def _begin(
        self, partition: TopicPartition, start: StreamOffset, found: Surveyed, *, is_new: bool
    ) -> int:
        known = None if is_new else start.positions.get(partition)
        if known is None:
            return self._first_of_new(partition, found)
        end = found.ends[partition]
        if end < known:
            self._loss.report(
                *partition,
                f"the log ends at {end}, and the stream had already read up to {known}",
            )
            return end
        self._check_mark(partition, start, found)
        return known

    def _check_mark(self, partition: TopicPartition, at: StreamOffset, found: Surveyed) -> None:
        """Report if other records are before the stream's offset than those that it has read."""
        known, offset = at.marks.get(partition), at.positions[partition]
        now = None if known is None else position_mark(found.log(partition), offset)
        if now is not None and now != known:
            self._loss.report(
                *partition,
                f"other records are now before offset {offset} than those that the stream has "
                f"read (batch {now}, it was {known}): the store was replaced by an older copy",
            )

    def _first_of_new(self, partition: TopicPartition, found: Surveyed) -> int:
        """New partitions are read from the beginning."""
        begin = found.log(partition).start_offset
        if begin > 0:
            self._loss.report(
                *partition,
                f"it is new to the stream and begins at offset {begin}: "
                "what came before was deleted",
            )
        return min(begin, found.ends[partition])

    def _ends(
        self, begins: Mapping[TopicPartition, int], found: Surveyed
    ) -> dict[TopicPartition, int]:
        ends = {partition: found.ends[partition] for partition in begins}
        if self._frozen is not None:
            for partition, begin in begins.items():
                frozen = self._frozen.ends.get(partition, begin)
                ends[partition] = max(begin, min(frozen, ends[partition]))
        return ends

    def _limited(
        self,
        begins: Mapping[TopicPartition, int],
        ends: dict[TopicPartition, int],
        found: Surveyed,
    ) -> dict[TopicPartition, int]:
        limits = self._options.limits
        backlog = {partition: ends[partition] - begin for partition, begin in begins.items()}
        if self._is_too_early(sum(backlog.values())):
            return dict(begins)
        if limits.offsets_max is not None:
            shares = share(backlog, limits.offsets_max)
            ends = {p: begin + shares.get(p, 0) for p, begin in begins.items()}
        if limits.bytes_max is not None:
            ends = self._limited_in_bytes(begins, ends, found, limits.bytes_max)
        return ends

    def _is_too_early(self, new_offsets: int) -> bool:
        """Whether to wait for more, by `minOffsetsPerTrigger` and `maxTriggerDelay`."""
        limits = self._options.limits
        if limits.offsets_min is None or self._frozen is not None:
            return False
        now_s, last_s = self._clock.monotonic(), self._last_batch_s
        has_waited = last_s is None or (now_s - last_s) * 1000 >= limits.delay_ms_max
        if new_offsets < limits.offsets_min and not has_waited:
            return True
        if new_offsets:
            self._last_batch_s = now_s
        return False

    def _limited_in_bytes(
        self,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        found: Surveyed,
        bytes_max: int,
    ) -> dict[TopicPartition, int]:
        sizes = {
            partition: max(size_between(found.log(partition), begin, ends[partition]), 1)
            for partition, begin in begins.items()
            if begin < ends[partition]
        }
        shares = share(sizes, bytes_max)
        return {
            partition: ends[partition]
            if shares.get(partition, 0) >= sizes.get(partition, 0)
            else offset_behind(
                found.log(partition), begin, ends[partition], size_bytes=shares[partition]
            )
            for partition, begin in begins.items()
        }

    # --- what to read ------------------------------------------------------------------------

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """The tasks of the micro-batch from `start` to `end`, which may be a replay."""
        found = survey(self._source, self._options.isolation)
        spans = self._spans(_replayed(start, end), end, found)
        return plan_ranges(found, pruned(found, spans, self._options), self._options)

    def _spans(self, start: StreamOffset, end: StreamOffset, found: Surveyed) -> Iterator[Span]:
        lost = self._recreated(end.topic_ids, found)
        for partition in sorted(end.positions):
            topic = partition[0]
            is_same = start.topic_ids.get(topic) == end.topic_ids.get(topic)
            begin = start.positions.get(partition, 0) if is_same else 0
            stop = end.positions[partition]
            if begin >= stop or topic in lost:
                continue
            if not found.has(partition):
                self._loss.report(*partition, f"was deleted before offset {begin} was read")
                continue
            first, last = found.log(partition).start_offset, found.ends[partition]
            if begin < first:
                self._loss.report(
                    *partition,
                    f"offsets from {begin} to {min(first, stop)} were deleted before they were "
                    "read: keep records longer (retention.ms, retention.bytes), or read faster",
                )
            if last < stop:
                self._loss.report(
                    *partition, f"the log ends at {last}, and had records up to {stop}"
                )
            elif start.positions.get(partition) == begin and first <= begin:
                self._check_mark(partition, start, found)
                self._check_mark(partition, end, found)
            if max(begin, first) < min(stop, last):
                yield partition, max(begin, first), min(stop, last)

    # --- what was read -----------------------------------------------------------------------

    def note_done(self, end: StreamOffset) -> None:
        """Note that all records before `end` were processed; commit that to the option `group`."""
        if self._tracer is not None:
            read = ((t, number, at) for (t, number), at in sorted(end.positions.items()))
            self._tracer.note("reading", positions=read)
        if self._progress is not None:
            self._progress.commit(end.positions)

    def _finish_if_frozen(self) -> None:
        """Close the source. The query's process may end right after this call."""
        if self._frozen is None:
            return
        if self._tracer is not None:
            self._tracer.end()
        if self._progress is not None:
            self._progress.flush()


def _marks_at(ends: Mapping[TopicPartition, int], found: Surveyed) -> dict[TopicPartition, str]:
    marks = {p: position_mark(found.log(p), offset) for p, offset in ends.items()}
    return {partition: mark for partition, mark in marks.items() if mark is not None}


def _replayed(start: StreamOffset, end: StreamOffset) -> StreamOffset:
    """The start of the first batch when it was planned; see `stream_offsets`."""
    if not start.is_initial:
        return start
    if end.is_initial:
        return end
    if end.first is None:
        return start
    return replace(start, positions=end.first, topic_ids=end.topic_ids, marks={})
