"""What compaction leaves of a log: the newest of each key in its place, and what others need."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from cordwood.format.batch import BatchDecoder, BatchInfo
from cordwood.format.batch_header import DELETE_HORIZON, decode_batch_header
from cordwood.format.compression import Codec
from cordwood.format.file_names import CLEANER
from cordwood.format.record import Record
from cordwood.log.compaction.cleaner import Cleaner, CleanerConfig
from cordwood.log.compaction.compaction_run import (
    CompactionOutcome,
    CompactionResult,
    CompactionRun,
)
from cordwood.log.compaction.compaction_walk import RunSettings
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.record_walk import segment_runs
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from cordwood.quantities import MIB, Offset, ProducerId, TimestampMs
from cordwood.storage.small_files.checkpoint_file import read_offset_checkpoint
from fakes.client_batches import NOW, client_batch, marker_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC, log_of, new_log, open_store

DAY_MS = 24 * 60 * 60 * 1000
COMPACT: dict[str, object] = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0,
    "file.delete.delay.ms": 0,
    "delete.retention.ms": DAY_MS,
}


class Bench:
    """A store with one compacted topic, and what the tests ask of it."""

    def __init__(self, config: dict[str, object] | None = None) -> None:
        self.clock = ManualClock(NOW)
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.store, self.log = new_log(self.fs, {**COMPACT, **(config or {})}, clock=self.clock)

    def compact(self) -> CompactionResult:
        (result,) = self.store.compact(TOPIC, force=True)
        return result

    def reopen(self) -> None:
        self.store.close()
        self.store = open_store(self.fs, clock=self.clock)
        self.log = log_of(self.store)

    def append(self, *pairs: tuple[bytes, bytes | None]) -> None:
        """One batch for each pair."""
        for key, value in pairs:
            self.log.append(value, key=key)

    def append_batch(self, *pairs: tuple[bytes | None, bytes | None], **rest: object) -> None:
        batch = client_batch(
            *[value for _, value in pairs],
            keys=[key for key, _ in pairs],
            timestamps=[self.clock.now_ms()] * len(pairs),
            **rest,  # type: ignore[arg-type]
        )
        self.log.batches.append_batch(batch)

    def end_transaction(self, producer_id: int, *, is_abort: bool) -> None:
        marker = MarkerFacts(
            producer_id=ProducerId(producer_id),
            producer_epoch=0,
            coordinator_epoch=0,
            offset=Offset(0),
            timestamp=self.clock.now_ms(),
            is_abort=is_abort,
        )
        data = marker_batch(producer_id, is_abort=is_abort, timestamp=self.clock.now_ms())
        self.log.batches.append_marker(data, marker)

    def records(self) -> list[tuple[int | None, bytes | None, bytes | None]]:
        return [(record.offset, record.key, record.value) for record in self.log.read()]

    def batches(self) -> list[BatchInfo]:
        return [batch for batch, _ in self.raw_batches()]

    def raw_batches(self) -> list[tuple[BatchInfo, bytes]]:
        found = []
        for segment in self.log.view().segments:
            data = segment.file().read_at(0, segment.size)
            decoder = BatchDecoder()
            for index in range(decoder.scan(memoryview(data), 0, len(data))):
                batch = decoder.batch(index)
                found.append((batch, data[batch.position : batch.position + batch.size]))
        return found

    def names(self, *endings: str) -> list[str]:
        names = [entry.name for entry in self.fs.list(f"{DATA}/{TOPIC}-0")]
        return sorted(name for name in names if name.endswith(endings))


# --- the newest of each key ------------------------------------------------------------------


def test_the_newest_record_of_each_key_stays_at_its_offset() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", b"1"), (b"a", b"3"))

    result = bench.compact()

    assert bench.records() == [(1, b"b", b"1"), (3, b"c", b"1"), (4, b"a", b"3")]
    assert result.outcome is CompactionOutcome.DONE
    assert (result.records_read, result.records_kept, result.keys) == (5, 3, 3)
    assert bench.log.end_offset == 5


def test_compacting_again_removes_what_later_records_supersede_in_the_clean_part() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"b", b"1"))
    bench.compact()
    bench.append((b"a", b"2"))

    result = bench.compact()

    assert bench.records() == [(1, b"b", b"1"), (2, b"a", b"2")]
    assert result.first_dirty == 2


def test_a_compacted_log_is_the_same_after_a_restart() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    bench.compact()
    before = bench.records()

    bench.reopen()

    assert bench.records() == before
    assert bench.store.damages() == []
    assert bench.log.state.cleaned_up_to == 3


def test_records_without_a_key_go() -> None:
    bench = Bench({"cleanup.policy": "delete"})
    bench.append_batch((None, b"x"), (b"a", b"1"), (None, b"y"))
    bench.store.alter_topic(TOPIC, config={"cleanup.policy": "compact"})

    result = bench.compact()

    assert bench.records() == [(1, b"a", b"1")]
    assert result.keyless_dropped == 2


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 5000])
def test_keys_of_any_length_are_told_apart(size: int) -> None:
    bench = Bench()
    key, other = b"k" * size, b"k" * size + b"x"
    bench.append((key, b"1"), (other, b"1"), (key, b"2"))

    bench.compact()

    assert bench.records() == [(1, other, b"1"), (2, key, b"2")]


def test_the_active_segment_is_out_of_reach_unless_it_is_forced() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"a", b"2"))

    assert bench.store.compact(TOPIC) == []
    assert bench.store.explain_compaction(TOPIC)[0].cleanable_bytes == 0
    assert len(bench.records()) == 2


def test_a_low_volume_topic_is_compacted_once_the_timer_rolls_its_segment() -> None:
    bench = Bench({"max.compaction.lag.ms": 60_000})
    bench.append((b"a", b"1"), (b"a", b"2"))

    bench.clock.advance(61_000)
    bench.store.maintain()
    bench.clock.advance(61_000)
    bench.store.maintain()

    assert bench.records() == [(1, b"a", b"2")]


# --- bytes -----------------------------------------------------------------------------------


def test_batches_that_keep_everything_are_copied_byte_for_byte() -> None:
    bench = Bench()
    bench.append_batch((b"a", b"1"), (b"b", b"1"), codec=Codec.ZSTD)
    bench.append_batch((b"c", b"1"), (b"d", b"1"))
    bench.append_batch((b"e", b"1"))
    bench.append_batch((b"e", b"2"))
    before = bench.raw_batches()

    bench.compact()

    assert [raw for _, raw in bench.raw_batches()] == [
        raw for _, raw in before if _ != before[2][0]
    ]


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("producer_id", [-1, 7])
def test_a_batch_that_loses_records_keeps_its_offsets_producer_and_codec(
    codec: Codec, producer_id: int
) -> None:
    bench = Bench()
    sequence = 0 if producer_id >= 0 else -1
    bench.append_batch(
        (b"a", b"1"), (b"b", b"1" * 500), (b"c", b"1"),
        codec=codec, producer_id=producer_id, sequence=sequence,
    )  # fmt: skip
    bench.append((b"a", b"2"), (b"c", b"2"))
    before = bench.batches()[0]

    bench.compact()

    after = bench.batches()[0]
    assert (after.base_offset, after.last_offset_delta, after.record_count) == (0, 2, 1)
    assert after.codec == codec
    assert after.attributes == before.attributes
    assert after.base_timestamp == before.base_timestamp
    for field in ("producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
        assert getattr(after, field) == getattr(before, field)
    assert bench.records()[0] == (1, b"b", b"1" * 500)


def test_the_largest_timestamp_is_that_of_what_stays() -> None:
    bench = Bench()
    batch = client_batch(b"1", b"1", keys=[b"a", b"b"], timestamps=[NOW - 50, NOW])
    bench.log.batches.append_batch(batch)
    bench.append((b"b", b"2"))

    bench.compact()

    assert bench.batches()[0].max_timestamp == NOW - 50


@pytest.mark.parametrize("value", [b"1", None])
def test_the_time_of_the_append_stays_that_of_the_batch(value: bytes | None) -> None:
    bench = Bench({"message.timestamp.type": "LogAppendTime"})
    bench.log.append_many([(b"a", value), (b"b", b"1")])
    bench.clock.advance(500)
    bench.append((b"b", b"2"))

    bench.compact()

    assert [record.timestamp_ms for record in bench.log.read()] == [NOW, NOW + 500]


def test_a_batch_larger_than_any_buffer_is_compacted() -> None:
    bench = Bench({"max.message.bytes": 8 * MIB})
    bench.log.append_many([(b"a", bytes(3 * MIB)), (b"b", b"1")])
    bench.append((b"b", b"2"))

    bench.compact()

    assert [(offset, key) for offset, key, _ in bench.records()] == [(0, b"a"), (2, b"b")]


def test_headers_and_timestamps_of_records_stay() -> None:
    bench = Bench()
    records = [
        Record(b"1", b"a", (("h", b"x"), ("i", None)), NOW - 5),
        Record(None, b"b", (("h", b"y"),), NOW - 900),
        Record(b"1", b"c", (), NOW),
    ]
    bench.log.append_many(records)
    bench.append((b"c", b"2"))

    bench.compact()

    found = list(bench.log.read())[:2]
    assert [(r.value, r.key, tuple(r.headers), r.timestamp_ms) for r in found] == [
        tuple(record[:4]) for record in records[:2]
    ]


# --- tombstones ------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
def test_a_tombstone_is_given_its_time_once_and_goes_after_it(codec: Codec) -> None:
    bench = Bench()
    bench.append((b"a", b"1"))
    bench.append_batch((b"a", None), (b"b", b"1"), codec=codec)

    bench.compact()

    batch = bench.batches()[0]
    assert bench.records() == [(1, b"a", None), (2, b"b", b"1")]
    assert batch.attributes & DELETE_HORIZON
    assert batch.base_timestamp == NOW + DAY_MS
    assert [record.timestamp_ms for record in bench.log.read()] == [NOW, NOW]

    bench.clock.advance(DAY_MS - 1)
    bench.compact()

    assert bench.batches()[0] == batch

    bench.clock.advance(1)
    bench.compact()

    assert bench.records() == [(2, b"b", b"1")]
    assert bench.batches()[0].base_offset == 1


def test_a_tombstone_that_a_value_follows_goes_at_once() -> None:
    bench = Bench()
    bench.append((b"a", None), (b"a", b"2"))

    bench.compact()

    assert bench.records() == [(1, b"a", b"2")]


# --- more keys than the map holds ------------------------------------------------------------


def run_with(
    bench: Bench, *, pace: Callable[[int], None] = lambda _: None, **rest: int
) -> CompactionResult:
    bench.log.roll()
    bench.log.syncing.sync_pending()
    now_ms = bench.clock.now_ms()
    settings = RunSettings(
        map_bytes=rest.pop("map_bytes", MIB),
        load_factor=0.9,
        secret=bytes(16),
        pace=pace,
        **rest,
    )
    plan = bench.log.compaction.plan(now_ms, force=True)
    return CompactionRun(bench.log, plan, settings, now_ms=TimestampMs(now_ms)).run()


def test_where_the_keys_do_not_fit_the_run_ends_early_and_the_next_goes_on() -> None:
    bench = Bench({"internal.segment.bytes": 2000})
    for round_ in range(2):
        bench.log.append_many([(b"%d" % n, b"%d" % round_) for n in range(100)])

    results = [run_with(bench, map_bytes=64 * 24)]
    while results[-1].outcome is CompactionOutcome.MAP_FULL:
        results.append(run_with(bench, map_bytes=64 * 24))

    assert len(results) == 4
    assert all(result.keys <= 57 for result in results)
    assert results[0].cleaned_up_to == 57
    assert bench.records() == [(100 + n, b"%d" % n, b"1") for n in range(100)]


# --- transactions ----------------------------------------------------------------------------


def test_what_an_open_transaction_may_undo_is_out_of_reach() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"a", b"2"))
    bench.log.roll()
    bench.append_batch((b"a", b"3"), producer_id=5, sequence=0, transactional=True)
    bench.append((b"b", b"1"))

    bench.compact()

    assert [(offset, key) for offset, key, _ in bench.records()] == [
        (1, b"a"),
        (2, b"a"),
        (3, b"b"),
    ]


def test_aborted_data_goes_at_once_and_supersedes_nothing() -> None:
    bench = Bench()
    bench.append((b"a", b"1"))
    bench.append_batch((b"a", b"2"), producer_id=5, sequence=0, transactional=True)
    bench.end_transaction(5, is_abort=True)
    bench.append_batch((b"b", b"1"), producer_id=5, sequence=1, transactional=True)
    bench.end_transaction(5, is_abort=False)

    bench.compact()

    assert bench.records() == [(0, b"a", b"1"), (3, b"b", b"1")]


def test_a_marker_stays_until_its_data_is_gone_and_its_time_is_over() -> None:
    bench = Bench()
    bench.append_batch((b"a", b"1"), producer_id=5, sequence=0, transactional=True)
    bench.end_transaction(5, is_abort=False)
    bench.append((b"a", b"2"))
    bench.append_batch((b"x", b"1"), producer_id=5, sequence=1)

    bench.compact()  # the data goes
    first = [
        (b.base_offset, b.is_control, bool(b.attributes & DELETE_HORIZON)) for b in bench.batches()
    ]
    bench.compact()  # nothing of it is met: the marker's time begins
    second = [
        (b.base_offset, b.is_control, bool(b.attributes & DELETE_HORIZON)) for b in bench.batches()
    ]
    bench.clock.advance(DAY_MS)
    bench.append_batch((b"y", b"1"), producer_id=6, sequence=0)
    bench.compact()
    third = [b.base_offset for b in bench.batches() if b.is_control]

    assert first[0] == (1, True, False)
    assert second[0] == (1, True, True)
    assert third == []


def test_an_aborted_transaction_stays_in_the_index_as_long_as_data_of_it_is_there() -> None:
    bench = Bench()
    bench.append_batch((b"a", b"1"), producer_id=5, sequence=0, transactional=True)
    bench.log.roll()
    bench.end_transaction(5, is_abort=True)
    bench.append((b"b", b"1"))

    bench.compact()

    first = bench.log.view().segments[0]
    assert [
        (t.producer_id, t.first_offset, t.last_offset) for t in first.indexes.transaction.entries()
    ] == [(5, 0, 1)]
    # The batch itself went, but for its header: it is the last of its producer.
    assert bench.batches()[0].record_count == 0


def test_a_key_that_looks_like_a_marker_is_a_key() -> None:
    bench = Bench()
    marker_key = b"\x00\x00\x00\x01"
    bench.append((marker_key, b"1"))
    bench.append_batch((b"a", b"1"), producer_id=5, sequence=0, transactional=True)
    bench.end_transaction(5, is_abort=False)

    bench.compact()

    assert bench.records()[0] == (0, marker_key, b"1")


# --- producers and offsets -------------------------------------------------------------------


def test_the_last_batch_of_a_producer_stays_as_a_header() -> None:
    bench = Bench()
    bench.append_batch((b"a", b"1"), producer_id=5, sequence=0)
    bench.append_batch((b"a", b"2"), producer_id=5, sequence=1)
    bench.append((b"a", b"3"))

    bench.compact()

    kept = bench.batches()[0]
    assert (kept.base_offset, kept.record_count, kept.base_sequence) == (1, 0, 1)
    assert (kept.base_timestamp, kept.max_timestamp) == (-1, NOW)
    bench.reopen()
    again = client_batch(b"2", keys=[b"a"], producer_id=5, sequence=1)
    assert bench.log.batches.append_batch(again).is_duplicate


def test_the_header_goes_once_its_producer_has_written_more_or_is_forgotten() -> None:
    bench = Bench()
    bench.append_batch((b"a", b"1"), producer_id=5, sequence=0)
    bench.append((b"a", b"2"))
    bench.compact()
    bench.append_batch((b"b", b"1"), producer_id=5, sequence=1)

    bench.compact()

    assert [batch.base_offset for batch in bench.batches()] == [1, 2]

    bench.append((b"b", b"2"))
    bench.clock.advance(2 * DAY_MS)
    bench.compact()

    assert [batch.base_offset for batch in bench.batches()] == [1, 3]


def test_the_last_offset_that_was_compacted_is_accounted_for() -> None:
    bench = Bench()
    bench.append((b"a", None))
    bench.compact()
    bench.clock.advance(DAY_MS)

    bench.compact()

    assert [(b.base_offset, b.record_count) for b in bench.batches()] == [(0, 0)]
    assert bench.log.end_offset == 1


# --- segments --------------------------------------------------------------------------------


def test_small_segments_become_one() -> None:
    bench = Bench()
    for number in range(20):
        bench.append((b"%d" % (number % 10), b"v"))
        bench.log.roll()

    result = bench.compact()

    assert (result.segments_before, result.segments_after) == (20, 1)
    assert [segment.base_offset for segment in bench.log.segments()] == [0, 20]
    assert [offset for offset, _, _ in bench.records()] == list(range(10, 20))
    assert bench.names(".log", ".deleted") == [
        "00000000000000000000.log",
        "00000000000000000020.log",
    ]


def test_snapshots_of_segments_that_are_gone_go_too() -> None:
    bench = Bench()
    for number in range(4):
        bench.append_batch((b"a", b"%d" % number), producer_id=5, sequence=number)
        bench.log.roll()

    bench.compact()

    assert bench.names(".snapshot") == ["00000000000000000004.snapshot"]


def test_a_compacted_segment_is_as_old_as_its_last_source() -> None:
    bench = Bench()
    bench.append((b"a", b"1"))
    bench.log.roll()
    bench.clock.advance(1000)
    bench.append((b"a", b"2"))
    bench.log.roll()
    modified_ms = bench.log.view().segments[1].modified_ms()
    bench.clock.advance(5000)

    bench.compact()

    assert bench.log.view().segments[0].modified_ms() == modified_ms


def test_a_segment_that_stays_as_it_is_is_not_replaced() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"b", b"1"))
    bench.compact()
    segment = bench.log.view().segments[0]

    result = bench.compact()

    assert bench.log.view().segments[0] is segment
    assert result.bytes_written == 0


def test_what_outgrows_a_segment_becomes_several() -> None:
    bench = Bench()
    bench.log.append_many([(b"x", b"0")])
    for number in range(9):
        bench.append((b"%d" % number, b"v" * 50))
    bench.append((b"x", b"1"))

    result = run_with(bench, rewrite_bytes_max=300)

    assert result.segments_after == 5
    assert [offset for offset, _, _ in bench.records()] == list(range(1, 11))
    bench.reopen()
    assert [offset for offset, _, _ in bench.records()] == list(range(1, 11))
    assert bench.store.damages() == []


def test_compact_and_delete_may_be_combined() -> None:
    bench = Bench({"cleanup.policy": "compact,delete", "retention.ms": 10_000})
    bench.append((b"a", b"1"), (b"a", b"2"))
    bench.compact()
    bench.clock.advance(20_000)
    bench.append((b"b", b"1"))

    bench.store.maintain()
    bench.store.maintain()

    assert bench.records() == [(2, b"b", b"1")]


# --- others at the same time -----------------------------------------------------------------


def test_a_reader_under_way_finishes_on_the_files_it_holds() -> None:
    bench = Bench()
    bench.append(*[(b"%d" % (n % 3), b"%d" % n) for n in range(12)])
    bench.log.roll()
    bench.log.syncing.sync_pending()
    view = bench.log.view()

    bench.compact()

    old = view.segments[0]
    runs = list(segment_runs(bench.log.source, old, old.base_offset, view.high_watermark))
    assert sum(len(run) for run in runs) == 12
    assert len(bench.records()) == 3


def test_a_reader_in_another_process_goes_on_from_any_offset() -> None:
    bench = Bench()
    for number in range(12):
        bench.append((b"%d" % (number % 3), b"%d" % number))
        bench.log.roll()
    bench.log.syncing.sync_pending()
    with ReadOnlyStore((DATA,), fs=bench.fs, clock=bench.clock, defaults=TopicConfig()) as beside:
        log = beside.topic(TOPIC).partition(0)
        reading = log.read(0)
        seen = [next(reading).offset for _ in range(4)]

        bench.compact()

        seen += [record.offset for record in reading]
        assert seen == [0, 1, 2, 3, 9, 10, 11]
        assert [record.offset for record in log.read(5)] == [9, 10, 11]


def test_a_log_that_is_cut_meanwhile_is_left_as_it_is() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"b", b"1"))
    bench.log.roll()
    bench.append((b"a", b"2"))

    def cut(_size: int) -> None:
        if bench.log.end_offset == 3:
            bench.log.truncation.truncate_to(2)

    result = run_with(bench, pace=cut)

    assert result.outcome is CompactionOutcome.OVERTAKEN
    assert bench.records() == [(0, b"a", b"1"), (1, b"b", b"1")]
    assert bench.names(".cleaned", ".swap") == []


def test_segments_deleted_meanwhile_do_not_come_back() -> None:
    bench = Bench()
    for number in range(4):
        bench.append((b"a", b"%d" % number))
        bench.log.roll()

    def delete(_size: int) -> None:
        bench.log.delete_before(2)

    result = run_with(bench, pace=delete)

    assert result.outcome is CompactionOutcome.OVERTAKEN
    assert [offset for offset, _, _ in bench.records()] == [2, 3]
    assert bench.names(".cleaned", ".swap") == []


def test_appends_and_rolls_meanwhile_are_kept() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"a", b"2"))

    def append(_size: int) -> None:
        bench.append((b"a", b"later"))
        bench.log.roll()

    run_with(bench, pace=append)

    found = bench.records()
    assert found[0] == (1, b"a", b"2")
    assert [offset for offset, _, _ in found] == list(range(1, bench.log.end_offset))


# --- checkpoint ------------------------------------------------------------------------------


def checkpoints(store: Store, fs: SimulatedFileSystem) -> dict[tuple[str, int], Offset]:
    return read_offset_checkpoint(fs, store.path, CLEANER)


def test_the_checkpoint_says_how_far_the_log_is_clean() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"a", b"2"))

    bench.compact()

    assert checkpoints(bench.store, bench.fs) == {(TOPIC, 0): 2}


def test_cutting_the_log_takes_the_checkpoint_back() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"b", b"2"))
    bench.compact()

    bench.log.truncation.truncate_to(1)

    assert checkpoints(bench.store, bench.fs) == {(TOPIC, 0): 1}
    assert bench.log.compaction.plan(bench.clock.now_ms()).first_dirty == 1


def test_the_checkpoint_of_a_deleted_topic_goes_before_a_new_one_begins() -> None:
    bench = Bench()
    bench.append((b"a", b"1"))
    bench.compact()

    bench.store.delete_topic(TOPIC)
    bench.store.create_topic(TOPIC).append(b"x")

    assert checkpoints(bench.store, bench.fs) == {}


def test_a_topic_that_is_not_compacted_any_more_keeps_its_gaps() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    bench.compact()
    bench.store.alter_topic(TOPIC, config={"cleanup.policy": "delete"})

    bench.reopen()

    assert [offset for offset, _, _ in bench.records()] == [1, 2]
    assert bench.store.damages() == []


# --- damage ----------------------------------------------------------------------------------


def damage(bench: Bench, position: int) -> None:
    segment = bench.log.view().segments[0]
    file = bench.fs.open_write(segment.name)
    byte = file.read_at(position, 1)[0]
    file.write_at(position, bytes([byte ^ 1]))
    file.close()


@pytest.mark.parametrize("position", [8, 70])
def test_a_damaged_segment_is_not_compacted_and_nothing_of_it_is_lost(position: int) -> None:
    bench = Bench()
    bench.append((b"a", b"1" * 50), (b"a", b"2" * 50))
    bench.log.roll()
    bench.log.syncing.sync_pending()
    damage(bench, position)
    size = bench.log.size_bytes

    result = bench.compact()

    assert result.outcome is CompactionOutcome.FAILED
    assert "CorruptSegmentError" in (result.error or "")
    assert bench.log.size_bytes == size
    assert bench.names(".cleaned", ".swap") == []
    (status,) = bench.store.cleaner.status()
    assert status.is_uncleanable


def test_new_segments_have_indexes_that_find_every_record() -> None:
    bench = Bench({"index.interval.bytes": 64, "internal.segment.bytes": 4000})
    for number in range(60):
        bench.log.append(b"v" * 20, key=b"%d" % (number % 37), timestamp_ms=NOW + number)
    bench.compact()
    first = bench.log.view().segments[0]

    first.indexes.offset.sanity_check(log_size=first.size)
    first.indexes.time.sanity_check()

    assert first.indexes.offset.count > 3
    for offset, _, _ in bench.records():
        assert offset is not None
        assert next(iter(bench.log.read(offset))).offset == offset
        assert bench.log.offset_for_time(NOW + offset) == offset


def test_a_header_left_for_its_offset_reads_as_nothing() -> None:
    bench = Bench()
    bench.append((b"a", None))
    bench.compact()
    bench.clock.advance(DAY_MS)
    bench.compact()

    assert bench.records() == []
    assert decode_batch_header(bench.raw_batches()[0][1]).record_count == 0


def test_a_cleaner_may_be_made_for_one_log_alone() -> None:
    bench = Bench()
    bench.append((b"a", b"1"), (b"a", b"2"))
    bench.log.roll()
    bench.log.syncing.sync_pending()
    logs: list[PartitionLog] = [bench.log]
    cleaner = Cleaner(lambda: logs, bench.clock, CleanerConfig(dedupe_buffer_size=1 * MIB))

    (result,) = cleaner.run_due(DATA)

    assert result.records_kept == 1
