"""Appending records: they are encoded in the caller's thread, then written together."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from cordwood.errors import InvalidRecordError, UnexpectedOffsetError
from cordwood.format import record_encoding
from cordwood.format.batch_builder import RUN_BYTES, BatchStyle, build_runs, build_sole
from cordwood.format.compression import Codec
from cordwood.format.record import Header, Record
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.fresh_pages import fresh_pages
from cordwood.log.partition.appends.group_commit import GroupCommit, PendingAppend
from cordwood.log.partition.appends.promises import Promises
from cordwood.log.partition.removal.truncation import Truncation
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.partition.writing.batch_writer import BatchWriter
from cordwood.log.rules.append_checks import check_timestamp
from cordwood.log.rules.appended import Appended, AppendedRange
from cordwood.log.rules.topic_config import Durability, TopicConfig
from cordwood.quantities import Offset, TimestampMs, timestamp_of

_NEEDS_KEY: Final = "a compacted topic needs a key"


def batch_style(config: TopicConfig) -> BatchStyle:
    return BatchStyle(
        bytes_max=min(config.max_message_bytes, config.segment_bytes_effective),
        codec=config.codec or Codec.NONE,
        level=config.compression_level,
        is_log_append_time=config.is_log_append_time,
    )


def _sole(data: bytearray | memoryview, timestamp: TimestampMs) -> UnplacedBatch:
    return UnplacedBatch(len(data), 1, timestamp)


def check_records(items: list[Any], config: TopicConfig, now_ms: TimestampMs) -> None:
    """Raises if one of them lacks a key that it needs, or if its timestamp is not allowed."""
    oldest, newest, keyless = record_encoding.survey_records(items, Record)
    if keyless >= 0 and config.is_compacted:
        raise InvalidRecordError(_NEEDS_KEY, [(keyless, _NEEDS_KEY)])
    for timestamp in (oldest, newest):
        if timestamp is not None:
            check_timestamp(timestamp, config, now_ms=now_ms)


class _Scratch(threading.local):
    """A buffer for each thread that appends: one for each log would be too many.

    It costs as much as the largest run of the thread. Threads that commit offsets append a few
    hundred bytes at a time.

    None while an append of the thread uses it: a signal handler may append something meanwhile.
    """

    def __init__(self) -> None:
        self.kept: memoryview | None = None


_SCRATCH: Final = _Scratch()


class Appending:
    """Appends records to one log. Any thread may call it.

    Records are checked and encoded without a lock, written under the log's lock, and acknowledged
    when the promise is kept.
    """

    def __init__(
        self,
        parts: LogParts,
        holder: StateHolder,
        *,
        writer: BatchWriter,
        commits: GroupCommit,
        promises: Promises,
        truncation: Truncation,
    ) -> None:
        self._partition = parts.partition
        self._clock = parts.clock
        self._holder = holder
        self._writer = writer
        self._commits = commits
        self._promises = promises
        self._truncation = truncation
        self._styled_by = parts.config  # the configuration that the next two are of
        self._style = batch_style(parts.config)
        self._needs_key = parts.config.is_compacted

    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | Mapping[str, bytes | None],
        timestamp_ms: int | datetime | None,
        expected_offset: int | None,
        durability: Durability | None = None,
    ) -> Appended:
        """Append one record. See `PartitionLog.append`."""
        holder = self._holder
        now_ms = self._clock.now_ms()
        data, timestamp = self._encode(value, key, headers, timestamp_ms, now_ms)
        promised = holder.config.durability
        if durability is not None and durability != promised:
            return self._append_otherwise(data, timestamp, now_ms, expected_offset, durability)
        if promised == "disk":
            item = PendingAppend(data, _sole(data, timestamp), now_ms, expected_offset)
            self._commits.commit(item)
            if item.error is not None:
                raise item.error
            return Appended(self._partition, item.offset, timestamp)
        with holder.lock:
            if expected_offset is None:
                holder.check_appendable()
            else:
                self._check_expected(expected_offset)
            offset = self._writer.write_unnumbered(data, 1, timestamp, now_ms)
        self._promises.await_kept(Offset(offset + 1))
        return tuple.__new__(Appended, (self._partition, offset, timestamp))

    def _encode(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | Mapping[str, bytes | None],
        timestamp_ms: int | datetime | None,
        now_ms: TimestampMs,
    ) -> tuple[bytearray | memoryview, TimestampMs]:
        """A batch of one record, checked, and its timestamp."""
        config = self._holder.config
        if timestamp_ms is None:
            timestamp = now_ms
        else:
            timestamp = timestamp_of(timestamp_ms)
            check_timestamp(timestamp, config, now_ms=now_ms)
        if not headers:
            headers = ()
        elif isinstance(headers, Mapping):
            headers = tuple(headers.items())
        style = self._style if self._styled_by is config else self._style_of(config)
        if key is None and self._needs_key:
            self._holder.check_open()
            raise InvalidRecordError(_NEEDS_KEY, [(0, _NEEDS_KEY)])
        return build_sole(value, key, headers, timestamp, now_ms, style)

    def prepare(
        self,
        value: bytes | None,
        key: bytes | None,
        headers: Sequence[Header] | Mapping[str, bytes | None],
        timestamp_ms: int | datetime | None,
        expected_offset: int | None,
    ) -> PendingAppend:
        """A record that is checked and encoded, for `commit_all`. Waits for nothing."""
        self._holder.check_open()
        now_ms = self._clock.now_ms()
        data, timestamp = self._encode(value, key, headers, timestamp_ms, now_ms)
        return PendingAppend(data, _sole(data, timestamp), now_ms, expected_offset)

    def commit_all(self, items: list[PendingAppend]) -> None:
        """Append prepared records in order; return once the topic's durability is reached.

        Each then has its offset or its error. All of them share a sync.
        """
        if self._holder.config.durability == "disk":
            self._commits.commit_all(items)
            return
        self._commits.place_all(items)
        ends = [item.offset + item.batch.record_count for item in items if item.error is None]
        if ends:
            self._promises.await_kept(Offset(max(ends)))

    def _append_otherwise(
        self,
        data: bytearray | memoryview,
        timestamp: TimestampMs,
        now_ms: TimestampMs,
        expected_offset: int | None,
        durability: Durability,
    ) -> Appended:
        """Append a batch with another durability than the topic's."""
        if durability not in ("disk", "os"):
            raise ValueError(f"durability must be 'disk' or 'os', not {durability!r}")
        with self._holder.lock:
            self._check_expected(expected_offset)
            offset = self._writer.write_unnumbered(data, 1, timestamp, now_ms)
        if durability == "disk":
            self._promises.await_durable(Offset(offset + 1))
        else:
            self._promises.acknowledge_soon(Offset(offset + 1))
        return Appended(self._partition, offset, timestamp)

    def append_many(self, records: Iterable[Any], expected_offset: int | None) -> AppendedRange:
        """Append records in order, all or none. See `PartitionLog.append_many`."""
        now_ms = self._clock.now_ms()
        items: list[Any] = records if isinstance(records, list) else list(records)
        self._check_many(items, now_ms)
        holder = self._holder
        style = self._style_of(holder.config)
        with holder.lock:
            first = self._check_expected(expected_offset)
            left = len(items)
            scratch = _SCRATCH.kept or memoryview(fresh_pages(RUN_BYTES))
            _SCRATCH.kept = None
            try:
                for run in build_runs(items, now_ms, style, scratch):
                    left -= sum(batch.record_count for batch in run.batches)
                    self._writer.write_run(run.data, run.batches, now_ms, is_visible=not left)
            except BaseException:
                if holder.state.end != first:
                    self._truncation.take_back(first)
                raise
            _SCRATCH.kept = scratch
            end = holder.state.end
        self._promises.await_kept(end)
        return AppendedRange(
            partition=self._partition, first_offset=first, next_offset=end, timestamp_ms=now_ms
        )

    def _style_of(self, config: TopicConfig) -> BatchStyle:
        if self._styled_by is not config:
            self._style, self._needs_key = batch_style(config), config.is_compacted
            self._styled_by = config
        return self._style

    def _check_expected(self, expected_offset: int | None) -> Offset:
        """Where the next record goes, if it may. Holds the lock."""
        self._holder.check_appendable()
        end = self._holder.state.end
        if expected_offset is not None and expected_offset != end:
            raise UnexpectedOffsetError(expected=Offset(expected_offset), actual=end)
        return end

    def _check_many(self, items: list[Any], now_ms: TimestampMs) -> None:
        try:
            check_records(items, self._holder.config, now_ms)
        except InvalidRecordError:
            self._holder.check_open()
            raise
