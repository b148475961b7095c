"""A compacted log against a dictionary of the newest records, over rounds, restarts and crashes."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cordwood.format.compression import Codec
from cordwood.log.compaction.compaction_run import CompactionOutcome
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import TOPIC, log_of, new_log, open_store

RETENTION_MS = 60_000

keys = st.integers(0, 9).map(lambda number: b"key %d" % number)
values = st.none() | st.binary(max_size=40)
batches = st.lists(st.tuples(keys, values), min_size=1, max_size=6)


class CompactedLog(RuleBasedStateMachine):
    """A log of which the newest record of each key, and nothing that was not written, is left.

    `written` holds every record by its offset; `latest` the newest offset of each key. A
    tombstone that was the newest of its key may be gone once compaction had the right to
    remove it: after its time, counted from the first compaction that met it.
    """

    store: Store
    log: PartitionLog

    @initialize(
        codec=st.sampled_from(["producer", "lz4"]), segment_bytes=st.sampled_from([300, 900, 5000])
    )
    def create(self, codec: str, segment_bytes: int) -> None:
        self.clock = ManualClock(NOW)
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.store, self.log = new_log(
            self.fs,
            {
                "cleanup.policy": "compact",
                "compression.type": codec,
                "internal.segment.bytes": segment_bytes,
                "index.interval.bytes": 60,
                "delete.retention.ms": RETENTION_MS,
                "min.cleanable.dirty.ratio": 0,
                "file.delete.delay.ms": 0,
            },
            clock=self.clock,
        )
        self.written: dict[int, tuple[bytes | None, bytes | None]] = {}
        self.latest: dict[bytes | None, int] = {}
        self.sequence = 0
        self.start = 0

    def _note(self, first: int, pairs: list[tuple[bytes, bytes | None]]) -> None:
        for offset, (key, value) in enumerate(pairs, first):
            self.written[offset] = (key, value)
            self.latest[key] = offset

    # --- what happens to it --------------------------------------------------------------------

    @rule(pairs=batches)
    def append(self, pairs: list[tuple[bytes, bytes | None]]) -> None:
        self._note(self.log.append_many(list(pairs)).first_offset, pairs)

    @rule(pairs=batches, codec=st.sampled_from([Codec.NONE, Codec.ZSTD]))
    def produce(self, pairs: list[tuple[bytes, bytes | None]], codec: Codec) -> None:
        """An idempotent producer, who must be able to go on after everything."""
        batch = client_batch(
            *[value for _, value in pairs],
            keys=[key for key, _ in pairs],
            timestamps=[self.clock.now_ms()] * len(pairs),
            codec=codec,
            producer_id=3,
            sequence=self.sequence,
        )
        placed = self.log.batches.append_batch(batch)
        assert not placed.is_duplicate
        self.sequence += len(pairs)
        self._note(placed.base_offset, pairs)

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule(ms=st.sampled_from([1, RETENTION_MS, 10 * RETENTION_MS]))
    def wait(self, ms: int) -> None:
        self.clock.advance(ms)

    @rule(force=st.booleans())
    def compact(self, force: bool) -> None:
        for result in self.store.compact(TOPIC, force=force):
            assert result.outcome is CompactionOutcome.DONE, result

    @rule(seed=st.integers(0, 2**32), cuts=st.integers(1, 60))
    def lose_power_while_compacting(self, seed: int, cuts: int) -> None:
        """The power goes with the `cuts`th call to the disk, or at the end."""
        left: list[SimulatedFileSystem] = []
        rng = Random(seed)

        def count(operation: str, path: str) -> None:
            nonlocal cuts
            cuts -= 1
            if cuts == 0:
                left.append(self.fs.crash(rng))

        self.fs.watch = count
        self.store.compact(TOPIC, force=True)
        self.fs.watch = None
        self.fs = left[0] if left else self.fs.crash(rng)
        self._open()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self._open()

    @precondition(lambda self: self.log.high_watermark > self.start)
    @rule(data=st.data())
    def delete_before(self, data: st.DataObject) -> None:
        self.start = data.draw(st.integers(self.start, self.log.high_watermark))
        self.log.delete_before(self.start)

    def _open(self) -> None:
        self.store = open_store(self.fs, clock=self.clock)
        self.log = log_of(self.store)
        assert self.store.damages() == []

    # --- what must hold ------------------------------------------------------------------------

    @invariant()
    def holds_the_newest_and_nothing_foreign(self) -> None:
        if not hasattr(self, "log"):
            return
        found = {record.offset: (record.key, record.value) for record in self.log.read()}
        assert list(found) == sorted(offset or 0 for offset in found)
        assert found.items() <= self.written.items()
        assert all((offset or 0) >= self.start for offset in found)
        for key, offset in self.latest.items():
            is_tombstone = self.written[offset][1] is None
            if offset >= self.start and not is_tombstone:
                assert offset in found, f"the newest of {key!r}, at {offset}, is gone"
            if is_tombstone and offset not in found:
                values_left = [o for o, (k, v) in found.items() if k == key and v is not None]
                assert not values_left, f"{key!r} was deleted and is back at {values_left}"
        assert self.log.end_offset == max(self.written, default=-1) + 1

    @invariant()
    def reads_the_same_from_any_offset(self) -> None:
        if not hasattr(self, "log"):
            return
        whole = [record.offset for record in self.log.read()]
        middle = (self.log.start_offset + self.log.high_watermark) // 2
        assert [record.offset for record in self.log.read(middle)] == [
            offset for offset in whole if (offset or 0) >= middle
        ]


CompactedLog.TestCase.settings = settings(stateful_step_count=25, deadline=None)
TestCompactedLog = CompactedLog.TestCase
