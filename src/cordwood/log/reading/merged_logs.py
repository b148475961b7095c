"""Several logs as one stream: merged by time, one after another, or as records arrive."""

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from heapq import merge
from typing import Final, Literal, NamedTuple

from cordwood.errors import LogClosedError
from cordwood.format.record import Header, Record, utc_time
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.record_walk import follow_records
from cordwood.log.rules.isolation import Isolation, is_committed_only
from cordwood.quantities import Offset

ReadOrder = Literal["time", "partition"]

# How long a follower of several logs waits for one of them before it looks at the others.
_PAUSE_S_MIN: Final = 0.001
_PAUSE_S_MAX: Final = 0.02


class TopicRecord(NamedTuple):
    """A record and the partition that it was read from."""

    value: bytes | None
    key: bytes | None
    headers: Sequence[Header]
    timestamp_ms: int
    offset: int
    partition: int

    @property
    def time(self) -> datetime | None:
        """The timestamp as a `datetime` in UTC; None if the record has none."""
        return utc_time(self.timestamp_ms)


def read_merged(
    logs: Sequence[LogReader], order: ReadOrder, isolation: Isolation
) -> Iterator[TopicRecord]:
    """All records that can be read now. Records of one log keep their order."""
    if order not in ("time", "partition"):
        raise ValueError(f"order must be 'time' or 'partition', not {order!r}")
    streams = [_all_labelled(log.partition, log.read(isolation=isolation)) for log in logs]
    if order == "time":
        return merge(*streams, key=_time_of)
    return (record for stream in streams for record in stream)


def follow_merged(
    logs: Sequence[LogReader],
    starts: Sequence[Offset],
    timeout_s: float | None,
    isolation: Isolation,
) -> Iterator[TopicRecord]:
    """Records of all logs from `starts` on, as they arrive, waiting for new ones.

    Ends when a log is closed, or after `timeout_s` without a new record.
    """
    only_committed = is_committed_only(isolation)
    positions = list(starts)
    quiet_since = time.monotonic()
    pause_s = _PAUSE_S_MIN
    turn = 0
    while True:
        has_news = False
        for index, log in enumerate(logs):
            try:
                source = log.source
                end = source.last_stable_offset if only_committed else source.high_watermark
            except LogClosedError:
                return
            if source.is_closed:
                return
            if end <= positions[index]:
                continue
            has_news = True
            new = follow_records(source, positions[index], 0, only_committed=only_committed)
            for record in new:
                yield labelled(record, log.partition)
                positions[index] = Offset(record.offset + 1)
            positions[index] = max(positions[index], end)
        if has_news:
            quiet_since, pause_s = time.monotonic(), _PAUSE_S_MIN
            continue
        left_s = pause_s
        if timeout_s is not None:
            left_s = min(pause_s, quiet_since + timeout_s - time.monotonic())
            if left_s <= 0:
                return
        turn = (turn + 1) % len(logs)
        source = logs[turn].source
        source.wait_beyond(max(positions[turn], source.high_watermark), left_s)
        pause_s = min(pause_s * 2, _PAUSE_S_MAX)


def labelled(record: Record, partition: int) -> TopicRecord:
    """The record with the partition that it was read from."""
    value, key, headers, timestamp_ms, offset = record
    at_ms = -1 if timestamp_ms is None else timestamp_ms
    return TopicRecord(value, key, headers, at_ms, offset, partition)


def _all_labelled(partition: int, records: Iterator[Record]) -> Iterator[TopicRecord]:
    return (labelled(record, partition) for record in records)


def _time_of(record: TopicRecord) -> int:
    return record.timestamp_ms
