"""Several logs as one stream: merged by time, one after another, or as records arrive."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from heapq import merge
from typing import Final, Literal, NamedTuple

from cordwood.errors import LogClosedError
from cordwood.format.record import Header, Record, utc_time
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.log_source import readable_end
from cordwood.log.rules.isolation import Isolation
from cordwood.quantities import Offset

ReadOrder = Literal["time", "partition"]

# A log with many records gives way to the others after so many offsets.
TURN_OFFSETS_MAX: Final = 10_000
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
    find_logs: Callable[[], Sequence[LogReader]],
    starts: Mapping[int, Offset],
    timeout_s: float | None,
    isolation: Isolation,
) -> Iterator[TopicRecord]:
    """Records of all logs from `starts` on, as they arrive, waiting for new ones.

    `starts` has an offset by partition. A log that `find_logs` brings later begins at its start.
    Ends when a log is closed, or after `timeout_s` without a new record.
    """
    following = MergedPositions(starts, isolation)
    quiet_since = time.monotonic()
    pause_s = _PAUSE_S_MIN
    turn = 0
    while True:
        has_news = False
        logs = find_logs()
        if not logs:
            return  # other brokers have all partitions
        for log in logs:
            reading = following.turn(log)
            if reading is None:
                return
            if reading.start >= reading.stop:
                continue
            has_news = True
            try:
                for record in log.read(reading.start, stop=reading.stop, isolation=isolation):
                    yield labelled(record, log.partition)
            except LogClosedError:
                return
            following.finish(reading)
        if has_news:
            quiet_since, pause_s = time.monotonic(), _PAUSE_S_MIN
            continue
        left_s = pause_s
        if timeout_s is not None:
            left_s = min(pause_s, quiet_since + timeout_s - time.monotonic())
            if left_s <= 0:
                return
        turn = (turn + 1) % len(logs)
        if not following.wait(logs[turn], left_s):
            pause_s = min(pause_s * 2, _PAUSE_S_MAX)


class Turn(NamedTuple):
    """What is read of one log before the others are looked at: offsets in [start, stop)."""

    partition: int
    start: Offset
    stop: Offset


class MergedPositions:
    """Where a follower is in each of several logs. For one thread or task at a time.

    Invariant: a turn ends at an end that was seen when it began, and after `TURN_OFFSETS_MAX`
    offsets. So a log that grows as quickly as it is read does not keep the others waiting.
    """

    def __init__(self, starts: Mapping[int, Offset], isolation: Isolation) -> None:
        self._next = dict(starts)
        self._isolation = isolation

    def turn(self, log: LogReader, offsets_max: int = TURN_OFFSETS_MAX) -> Turn | None:
        """What to read of a log now, maybe nothing; None if the log is closed."""
        end = readable_end(log.source, self._isolation)
        if end is None:
            return None
        start = self._next.get(log.partition)
        if start is None:
            start = self._next[log.partition] = log.start_offset
        return Turn(log.partition, start, min(end.offset, Offset(start + offsets_max)))

    def finish(self, turn: Turn) -> None:
        """Everything in the turn was given out. It may end with offsets that have no record."""
        self._next[turn.partition] = turn.stop

    def wait(self, log: LogReader, timeout_s: float) -> bool:
        """Wait for news of one log; False at the timeout."""
        end = readable_end(log.source, self._isolation)
        if end is None:
            return False
        beyond = max(self._next.get(log.partition, Offset(0)), end.high_watermark)
        return log.source.wait_beyond(beyond, timeout_s)


def labelled(record: Record, partition: int) -> TopicRecord:
    """The record with the partition that it was read from."""
    value, key, headers, timestamp_ms, offset = record
    at_ms = -1 if timestamp_ms is None else timestamp_ms
    return TopicRecord(value, key, headers, at_ms, offset, partition)


def _all_labelled(partition: int, records: Iterator[Record]) -> Iterator[TopicRecord]:
    return (labelled(record, partition) for record in records)


def _time_of(record: TopicRecord) -> int:
    return record.timestamp_ms
