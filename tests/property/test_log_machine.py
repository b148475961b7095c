"""A log is a list that may lose what it never promised, and nothing else.

Hypothesis appends, cuts, deletes, rolls, reopens, kills and pulls the plug in any order; a plain
list says what must be there.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import chain

from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cordwood.errors import CorruptSegmentError, OffsetOutOfRangeError
from cordwood.format.record import Record
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.file_range import read_range
from cordwood.log.store.store import Store
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, new_log, open_store

KEYS = (b"a", b"b", None)
PRODUCERS = (7, 8)
BATCH_SIZES = st.integers(1, 4)
seeds = st.integers(0, 2**32)
shares = st.floats(0, 1)
ages = st.integers(0, 60)


@dataclass(frozen=True)
class Entry:
    """A batch of the model."""

    records: tuple[Record, ...]
    producer: int | None = None
    sequence: int = 0

    @property
    def base(self) -> int:
        return self.records[0].offset

    @property
    def end(self) -> int:
        return self.base + len(self.records)


class LogMachine(RuleBasedStateMachine):
    """Drives one log of durability `os`; see below for `disk`."""

    durability = "os"

    fs: SimulatedFileSystem
    store: Store
    log: PartitionLog

    @initialize(
        segment_bytes=st.sampled_from([250, 700, 100_000]),
        interval=st.sampled_from([0, 100, 4096]),
        codec=st.sampled_from(["producer", "lz4"]),
    )
    def begin(self, segment_bytes: int, interval: int, codec: str) -> None:
        self.clock = ManualClock(NOW)
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.entries: list[Entry] = []  # also those below the start: producers remember them
        self.start = 0
        self.made = 0
        self.store, self.log = new_log(
            self.fs,
            {
                "durability": self.durability,
                "internal.segment.bytes": segment_bytes,
                "index.interval.bytes": interval,
                "compression.type": codec,
                "file.delete.delay.ms": 0,
            },
            clock=self.clock,
        )

    # --- the model ------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        return max(self.entries[-1].end if self.entries else 0, self.start)

    @property
    def records(self) -> list[Record]:
        found = chain.from_iterable(entry.records for entry in self.entries)
        return [record for record in found if record.offset >= self.start]

    def fresh(self, count: int, age: int) -> list[Record]:
        """Records that were never written before, with times in no order."""
        made = []
        for number in range(count):
            self.made += 1
            made.append(
                Record(
                    b"value %d" % self.made,
                    KEYS[self.made % 3],
                    [],
                    NOW - (age * 7 + number * 13) % 61,
                    self.end + number,
                )
            )
        return made

    def place_at(self, share: float) -> int:
        return self.start + round(share * (self.end - self.start))

    # --- appending ------------------------------------------------------------------------------

    @rule(age=ages)
    def append(self, age: int) -> None:
        [record] = self.fresh(1, age)

        where = self.log.append(record.value, key=record.key, timestamp_ms=record.timestamp_ms)

        assert (where.offset, where.timestamp_ms) == (record.offset, record.timestamp_ms)
        self.entries.append(Entry((record,)))

    @rule(count=BATCH_SIZES, age=ages)
    def append_many(self, count: int, age: int) -> None:
        records = self.fresh(count, age)

        where = self.log.append_many([record._replace(offset=-1) for record in records])

        assert (where.first_offset, where.count) == (self.end, count)
        self.entries.append(Entry(tuple(records)))

    @rule(count=BATCH_SIZES, age=ages, producer=st.sampled_from(PRODUCERS))
    def append_batch(self, count: int, age: int, producer: int) -> None:
        sequence = self.next_sequence(producer)
        entry = Entry(tuple(self.fresh(count, age)), producer, sequence)

        where = self.log.batches.append_batch(self.encoded(entry))

        assert (where.base_offset, where.is_duplicate) == (entry.base, False)
        self.entries.append(entry)

    @rule(producer=st.sampled_from(PRODUCERS))
    def send_the_last_batch_again(self, producer: int) -> None:
        last = self.last_of(producer)
        if last is None or last.base < self.start:
            return  # a producer whose batches are deleted may be forgotten

        where = self.log.batches.append_batch(self.encoded(last))

        assert (where.is_duplicate, where.base_offset) == (True, last.base)

    def encoded(self, entry: Entry) -> bytearray:
        return client_batch(
            *[record.value for record in entry.records],
            keys=[record.key for record in entry.records],
            timestamps=[record.timestamp_ms or 0 for record in entry.records],
            producer_id=entry.producer if entry.producer is not None else -1,
            sequence=entry.sequence,
        )

    def last_of(self, producer: int) -> Entry | None:
        return next((e for e in reversed(self.entries) if e.producer == producer), None)

    def next_sequence(self, producer: int) -> int:
        last = self.last_of(producer)
        return 0 if last is None else last.sequence + len(last.records)

    # --- rolling and cutting ----------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def maintain(self) -> None:
        self.store.maintain()

    @rule()
    def sync(self) -> None:
        self.log.sync()

        assert self.log.state.durable == self.end

    @rule(share=shares)
    def truncate(self, share: float) -> None:
        offset = self.place_at(share)

        self.log.truncation.truncate_to(offset)

        kept = [entry for entry in self.entries if entry.end <= offset]
        self.entries = kept if not kept or kept[-1].end >= self.start else []

    @rule(share=shares)
    def delete_before(self, share: float) -> None:
        offset = self.place_at(share)

        assert self.log.delete_before(offset) == offset

        self.start = offset

    # --- the end of the process -----------------------------------------------------------------

    @rule()
    def close_and_open(self) -> None:
        self.store.close()
        self.reopen(self.fs)

    @rule()
    def kill(self) -> None:
        self.reopen(self.fs.kill())

    @rule(seed=seeds)
    def lose_power(self, seed: int) -> None:
        durable = self.log.state.durable
        self.reopen(self.fs.crash(random.Random(seed)))

        survivors, first_hole = self.survivors()

        expected = {record.offset: record for record in self.records}
        for record in survivors:
            assert record == expected[record.offset], "what survives is what was written"
        found = {record.offset for record in survivors}
        lost = [offset for offset in expected if offset not in found]
        assert all(offset >= durable for offset in lost), "a synced record is a promise"
        self.settle(first_hole)

    def survivors(self) -> tuple[list[Record], int]:
        """What can be read, and the first offset that cannot."""
        found: list[Record] = []
        first_hole = self.log.end_offset
        offset: int | None = self.log.start_offset
        while offset is not None:
            try:
                for record in self.log.read(offset):
                    found.append(record)
                return found, first_hole
            except CorruptSegmentError as error:
                first_hole = min(first_hole, error.first_offset)
                offset = error.next_offset
                if offset is not None and offset > self.log.high_watermark:
                    break
        return found, first_hole

    def settle(self, end: int) -> None:
        """Go on with what is left before the first hole."""
        if self.log.end_offset > end:
            self.log.truncation.truncate_to(max(end, self.log.start_offset))
            self.close_and_open()
        self.entries = [entry for entry in self.entries if entry.end <= self.log.end_offset]

    def reopen(self, fs: SimulatedFileSystem) -> None:
        self.fs = fs
        self.store = open_store(fs, clock=self.clock)
        self.log = log_of(self.store)

    # --- reading --------------------------------------------------------------------------------

    @rule(share=shares, count=st.integers(0, 6) | st.none())
    def read_from_anywhere(self, share: float, count: int | None) -> None:
        offset = self.place_at(share)

        found = list(self.log.read(offset, max_records=count))

        assert found == [r for r in self.records if r.offset >= offset][:count]

    @rule(share=shares, width=shares)
    def scan_a_range(self, share: float, width: float) -> None:
        offset = self.place_at(share)
        stop = offset + round(width * (self.end - offset))

        batches = list(self.log.scan(offset, stop, columns=["offset", "value"]))

        rows = [row for batch in batches for row in batch.to_pylist()]
        assert rows == [
            {"offset": r.offset, "value": r.value}
            for r in self.records
            if offset <= r.offset < stop
        ]

    @rule(share=shares, max_bytes=st.integers(1, 500))
    def read_file_ranges(self, share: float, max_bytes: int) -> None:
        offset = self.place_at(share)

        part = read_range(self.log.source, offset, max_bytes=max_bytes)

        if offset == self.end:
            assert part is None
            return
        assert part is not None
        holding = next(entry for entry in self.entries if entry.end > offset)
        assert part.base_offset <= offset
        assert part.base_offset >= holding.base
        assert part.length > 0

    @rule(age=st.integers(-1, 62))
    def look_up_a_time(self, age: int) -> None:
        found = self.log.offset_for_time(NOW - age)

        matches = [r.offset for r in self.records if (r.timestamp_ms or 0) >= NOW - age]
        assert found == (matches[0] if matches else None)

    @rule()
    def look_up_the_largest_time(self) -> None:
        found = self.log.offset_for_time(-3)

        largest = max(self.records, key=lambda r: r.timestamp_ms or 0, default=None)
        assert found == (None if largest is None else largest.offset)

    @rule(key=st.sampled_from([b"a", b"b", b"none"]))
    def find_a_key(self, key: bytes) -> None:
        newest = [record for record in self.records if record.key == key]

        assert self.log.find(key) == (newest[-1] if newest else None)

    @rule()
    def read_outside(self) -> None:
        for offset in (self.start - 1, self.end + 1):
            try:
                self.log.read(offset)
            except OffsetOutOfRangeError as error:
                assert (error.start, error.end) == (self.start, self.end)
            else:
                raise AssertionError(f"{offset} is not in [{self.start}, {self.end}]")

    @invariant()
    def the_log_is_the_model(self) -> None:
        if hasattr(self, "log"):
            assert (self.log.start_offset, self.log.end_offset) == (self.start, self.end)
            assert self.log.high_watermark == self.end
            assert list(self.log.read()) == self.records
            assert self.store.damages() == []


class DurableLogMachine(LogMachine):
    """With durability `disk` a power cut loses nothing that was acknowledged."""

    durability = "disk"

    @precondition(lambda self: hasattr(self, "log"))
    @rule(seed=seeds)
    def lose_power(self, seed: int) -> None:
        assert self.log.state.durable == self.end

        self.reopen(self.fs.crash(random.Random(seed)))


TestLog = LogMachine.TestCase
TestDurableLog = DurableLogMachine.TestCase
