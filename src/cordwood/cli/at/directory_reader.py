"""Reading a topic from its files, beside whoever writes them."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from cordwood.cli.at.backend import Extent
from cordwood.errors import LogError
from cordwood.format.batch import RecordRun
from cordwood.format.record import Record
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.reading.record_walk import read_runs
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.quantities import Offset
from cordwood.remote.record_chunk import RecordChunk, records_of_key

_PAUSE_S_MIN: Final = 0.001
_PAUSE_S_MAX: Final = 0.05
_PAUSE_GROWTH: Final = 1.5
# Each partition that is read keeps a buffer of up to 2 MiB. Where there are more of them than
# this, each starts anew with a small one for every chunk.
_BUFFERS_MAX: Final = 16


class DirectoryReader:
    """Implements `TopicReader` over a store that was opened for reading."""

    def __init__(
        self, store: ReadOnlyStore, topic: str, partitions: Sequence[int] | None = None
    ) -> None:
        self.topic = topic
        self._store = store
        self._topic = store.topic(topic)
        self._chosen = None if partitions is None else list(partitions)
        for number in self._chosen or ():
            self._topic.partition(number)  # raises where there is none

    @property
    def partitions(self) -> Sequence[int]:
        if self._chosen is not None:
            return self._chosen
        return [log.partition for log in self._topic.partitions]

    def refresh(self) -> None:
        self._store.topics()
        current = self._store.topic(self.topic)
        if current.topic_id != self._topic.topic_id:
            raise LogError(f"topic {self.topic!r} was deleted and created again meanwhile")
        self._topic = current

    def _log(self, partition: int) -> ReadOnlyLog:
        return self._topic.partition(partition)

    # --- positions ---------------------------------------------------------------------------

    def extents(self) -> dict[int, Extent]:
        views = {number: self._log(number).view() for number in self.partitions}
        return {number: Extent(view.start, view.high_watermark) for number, view in views.items()}

    def offsets_at(self, timestamp_ms: int) -> dict[int, int]:
        found: dict[int, int] = {}
        for number in self.partitions:
            log = self._log(number)
            end = log.high_watermark
            offset = log.offset_for_time(timestamp_ms)
            found[number] = end if offset is None else offset
        return found

    # --- records -----------------------------------------------------------------------------

    def chunks(self, partition: int, start: int, stop: int) -> Iterator[RecordChunk]:
        log, position = self._log(partition), start
        if len(self.partitions) <= _BUFFERS_MAX:
            for run in read_runs(log.source, start, stop):
                yield _chunk(partition, run)
        else:
            while (chunk := _first_chunk(log, partition, position, stop)).records:
                yield chunk
                position = chunk.next_offset
        yield RecordChunk(partition, [], stop)

    def chunks_of_key(
        self, partition: int, start: int, stop: int, key: bytes
    ) -> Iterator[RecordChunk]:
        for run in self._log(partition).keys.runs(key, Offset(start), Offset(stop)):
            records = records_of_key(run, key)
            if records:
                yield RecordChunk(partition, records, records[-1].offset + 1)
        yield RecordChunk(partition, [], stop)

    def newest(self, partition: int, key: bytes) -> Record | None:
        return self._log(partition).find(key)

    def news(self, positions: Mapping[int, int], timeout_s: float) -> list[RecordChunk]:
        """By looking again and again, ever less often: no lock, no message."""
        deadline_s = time.monotonic() + timeout_s
        pause_s = _PAUSE_S_MIN
        while True:
            chunks = self._look(positions)
            left_s = deadline_s - time.monotonic()
            if chunks or left_s <= 0:
                return chunks
            time.sleep(min(pause_s, left_s))
            pause_s = min(pause_s * _PAUSE_GROWTH, _PAUSE_S_MAX)

    def _look(self, positions: Mapping[int, int]) -> list[RecordChunk]:
        chunks: list[RecordChunk] = []
        for number, position in positions.items():
            log = self._log(number)
            end = log.high_watermark
            if end > position:
                chunks.append(_first_chunk(log, number, position, end))
        return chunks


def _chunk(partition: int, run: RecordRun) -> RecordChunk:
    records = run.records()
    return RecordChunk(partition, records, records[-1].offset + 1)


def _first_chunk(log: LogReader, partition: int, start: int, stop: int) -> RecordChunk:
    """What the first look brings, and no more than that in memory; nothing: up to the end."""
    for run in read_runs(log.source, start, stop):
        return _chunk(partition, run)
    return RecordChunk(partition, [], stop)
