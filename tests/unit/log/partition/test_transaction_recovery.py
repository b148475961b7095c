"""After a crash the index of aborted transactions is what it was, or is made again."""

import shutil
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import (
    InvalidProducerEpochError,
    LogFailedError,
    TransactionCoordinatorFencedError,
)
from cordwood.format.batch import BatchInfo
from cordwood.format.batch_header import decode_batch_header
from cordwood.format.file_names import CLEAN_SHUTDOWN, CLEANER
from cordwood.format.index_entry import AbortedTransaction
from cordwood.format.small_files.producer_snapshot import (
    ProducerSnapshotEntry,
    encode_producer_snapshot,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import FilePosition, Offset, ProducerId, TimestampMs
from cordwood.storage.files import replace_file
from cordwood.storage.segment_parts.readable_segment import ReadableSegment
from cordwood.storage.small_files.checkpoint_file import write_offset_checkpoint
from fakes.client_batches import NOW, client_batch, marker_batch, raw_batch, raw_record
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, open_store

PRODUCER = 7
TURNS = 12
KEPT = {"retention.ms": "-1"}  # the batches bear old timestamps


def marker_facts(
    *, producer_epoch: int = 0, coordinator_epoch: int = 0, is_abort: bool = False
) -> MarkerFacts:
    return MarkerFacts(
        producer_id=ProducerId(PRODUCER),
        producer_epoch=producer_epoch,
        coordinator_epoch=coordinator_epoch,
        offset=Offset(0),
        timestamp=TimestampMs(NOW),
        is_abort=is_abort,
    )


def write_turn(log: PartitionLog, turn: int) -> None:
    """One transaction of two batches; every second one is aborted."""
    for half in range(2):
        data = client_batch(
            b"turn %d" % turn,
            producer_id=PRODUCER,
            producer_epoch=0,
            sequence=turn * 2 + half,
            transactional=True,
        )
        log.batches.append_batch(data)
    is_abort = turn % 2 == 0
    marker = marker_facts(is_abort=is_abort)
    log.batches.append_marker(marker_batch(PRODUCER, is_abort=is_abort), marker)


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return [
        entry for segment in log.view().segments for entry in segment.indexes.transaction.entries()
    ]


def writable(store: cordwood.Store) -> PartitionLog:
    log = store.topic("t").partition(0)
    assert isinstance(log, PartitionLog)
    return log


EXPECTED = [
    AbortedTransaction(
        producer_id=ProducerId(PRODUCER),
        first_offset=Offset(turn * 3),
        last_offset=Offset(turn * 3 + 2),
        last_stable_offset=Offset(turn * 3 + 3),
    )
    for turn in range(0, TURNS, 2)
]


@pytest.mark.parametrize("has_lost_indexes", [False, True], ids=["kept", "lost"])
@pytest.mark.parametrize("checkpoint_at", [None, 0, 3, 7, TURNS - 1])
@pytest.mark.parametrize("segment_bytes", ["600", "100000"])
def test_aborted_transactions_survive_a_crash(
    tmp_path: Path, segment_bytes: str, checkpoint_at: int | None, has_lost_indexes: bool
) -> None:
    """What was not synced by the last checkpoint may be lost; the log has it all the same."""
    synced: set[Path] = set()
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("t", config={**KEPT, "internal.segment.bytes": segment_bytes})
        log = writable(store)
        for turn in range(TURNS):
            write_turn(log, turn)
            if turn == checkpoint_at:
                store.maintain()
                synced = set((tmp_path / "data").rglob("*.txnindex"))
        assert aborted(log) == EXPECTED
        shutil.copytree(tmp_path / "data", tmp_path / "crashed")
    if has_lost_indexes:
        for path in (tmp_path / "crashed").rglob("*.txnindex"):
            if tmp_path / "data" / path.relative_to(tmp_path / "crashed") not in synced:
                path.unlink()

    with cordwood.open(tmp_path / "crashed") as store:
        recovered = aborted(writable(store))

    assert recovered == EXPECTED


def test_aborted_transactions_are_still_indexed_after_a_clean_restart(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        store.create_topic("t", config={**KEPT, "internal.segment.bytes": "600"})
        for turn in range(TURNS - 1):
            write_turn(writable(store), turn)

    with cordwood.open(tmp_path / "data") as store:
        write_turn(writable(store), TURNS - 1)
        found = aborted(writable(store))

    assert found == EXPECTED


# --- markers that compaction emptied ------------------------------------------------------------


def emptied_marker(offset: int, *, producer_epoch: int = 0) -> bytearray:
    """What compaction leaves of a marker: the header of its batch, without a record."""
    return raw_batch(
        b"",
        count=0,
        last_offset_delta=0,
        base_offset=offset,
        leader_epoch=0,
        attributes=0x30,
        producer_id=PRODUCER,
        producer_epoch=producer_epoch,
    )


def adopted(*segments: list[bytearray], snapshot: ProducerSnapshotEntry | None = None) -> Store:
    """A store over a directory as Kafka leaves it, with a snapshot at the last segment."""
    fs = SimulatedFileSystem(clock=ManualClock(NOW))
    fs.make_directory("/data")
    fs.make_directory("/data/events-0")
    for batches in segments:
        base = decode_batch_header(batches[0]).base_offset
        replace_file(fs, f"/data/events-0/{base:020}.log", b"".join(batches))
        if snapshot is not None and batches is segments[-1]:
            content = encode_producer_snapshot([snapshot])
            replace_file(fs, f"/data/events-0/{base:020}.snapshot", content)
            replace_file(fs, f"/data/{CLEAN_SHUTDOWN}", b"{}")
    write_offset_checkpoint(fs, "/data", CLEANER, {("events", 0): Offset(0)})
    return open_store(fs, clock=ManualClock(NOW))


OPEN = ProducerSnapshotEntry(
    producer_id=ProducerId(PRODUCER),
    producer_epoch=0,
    last_sequence=0,
    last_offset=Offset(1),
    offset_delta=0,
    timestamp=TimestampMs(NOW),
    coordinator_epoch=4,
    current_txn_first_offset=Offset(1),
)


@pytest.mark.parametrize("epoch", [0, 3])
def test_an_emptied_marker_is_replayed(epoch: int) -> None:
    log = log_of(adopted([client_batch(b"a"), emptied_marker(2, producer_epoch=epoch)]))

    assert (log.end_offset, log.last_stable_offset) == (3, 3)
    assert log.damages == []
    if epoch:
        with pytest.raises(InvalidProducerEpochError):
            log.batches.append_batch(
                client_batch(b"x", producer_id=PRODUCER, producer_epoch=2, sequence=0)
            )


def test_an_emptied_marker_ends_the_transaction_that_an_older_snapshot_has_open() -> None:
    store = adopted(
        [client_batch(b"a")], [emptied_marker(2), client_batch(b"b", base_offset=3)], snapshot=OPEN
    )

    log = log_of(store)
    assert (log.end_offset, log.last_stable_offset) == (4, 4)
    assert [r.value for r in log.read(isolation="read_committed")] == [b"a", b"b"]
    marker = marker_facts(coordinator_epoch=3)
    with pytest.raises(TransactionCoordinatorFencedError):
        log.batches.append_marker(marker_batch(PRODUCER, coordinator_epoch=3), marker)


def test_a_reader_beside_the_writer_sees_the_end_of_the_transaction_too() -> None:
    store = adopted(
        [client_batch(b"a")], [emptied_marker(2), client_batch(b"b", base_offset=3)], snapshot=OPEN
    )

    reader = ReadOnlyStore(
        store.data_dirs, fs=store._fs, clock=ManualClock(NOW), defaults=TopicConfig()
    )

    log = reader.topic("events").partition(0)
    assert log.last_stable_offset == 4
    assert [r.value for r in log.read(isolation="read_committed")] == [b"a", b"b"]


@pytest.mark.parametrize("cut", [2, 3, 4])
def test_a_log_with_an_emptied_marker_can_be_truncated(cut: int) -> None:
    log = log_of(
        adopted(
            [
                client_batch(b"a"),
                emptied_marker(2),
                client_batch(b"b", base_offset=3),
                client_batch(b"c", base_offset=4),
            ]
        )
    )

    log.truncation.truncate_to(cut)
    log.batches.append_batch(client_batch(b"d", producer_id=PRODUCER, sequence=0))

    assert log.state.failure is None
    assert (log.end_offset, log.last_stable_offset) == (cut + 1, cut + 1)


def test_a_reload_that_fails_leaves_no_half_loaded_states(monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_of(adopted([client_batch(b"a"), client_batch(b"b", base_offset=1)]))
    states = log.producers.states

    def fail(*_arguments: object) -> None:
        raise IndexError("injected")

    monkeypatch.setattr("cordwood.log.partition.derived_state.log_producers.replay", fail)
    with pytest.raises(IndexError):
        log.truncation.truncate_to(1)

    assert log.producers.states is states
    with pytest.raises(LogFailedError):
        log.append(b"x")


@pytest.mark.parametrize("key", [b"", b"\x00", b"\xff\xff\x00\x00", b"\x00\x00\x00\x63"])
def test_a_control_record_that_nobody_knows_is_passed_over(key: bytes) -> None:
    strange = raw_batch(
        raw_record(b"", key=key), base_offset=1, leader_epoch=0, attributes=0x30,
        producer_id=PRODUCER, producer_epoch=0,
    )  # fmt: skip

    log = log_of(adopted([client_batch(b"a"), strange]))

    assert (log.end_offset, log.last_stable_offset) == (2, 2)


def test_after_compaction_a_rotten_snapshot_costs_nothing(tmp_path: Path) -> None:
    """The broker raises the epoch with the marker, so the marker is all that has it."""
    clock = ManualClock(NOW)
    config = {
        "cleanup.policy": "compact", "delete.retention.ms": 0, "min.cleanable.dirty.ratio": 0,
    }  # fmt: skip
    setup = StoreSetup(clock=clock, has_housekeeping=False)
    store = Store([str(tmp_path)], setup)
    store.create_topic("t", config=config)
    log = writable(store)
    log.append(b"old", key=b"k", timestamp_ms=NOW)
    for is_abort in (False, True):
        log.batches.append_batch(
            client_batch(
                b"in",
                keys=[b"k"],
                producer_id=PRODUCER,
                producer_epoch=int(is_abort),
                sequence=0,
                transactional=True,
            )
        )
        marker = marker_facts(producer_epoch=1 + is_abort, is_abort=is_abort)
        log.batches.append_marker(
            marker_batch(PRODUCER, producer_epoch=1 + is_abort, is_abort=is_abort), marker
        )
        log.roll()
    log.append(b"new", key=b"k", timestamp_ms=NOW)
    for _ in range(3):
        clock.advance(1000)
        store.compact("t", force=True)
    batches = [batch for segment in log.view().segments for batch in headers(segment)]
    assert any(batch.is_control and not batch.record_count for batch in batches), batches
    values = [record.value for record in log.read()]
    store.close()

    snapshots = sorted(tmp_path.rglob("*.snapshot"))
    assert snapshots
    for path in snapshots:
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)

    again = Store([str(tmp_path)], setup)
    log = writable(again)
    assert [record.value for record in log.read()] == values
    assert log.last_stable_offset == log.end_offset
    with pytest.raises(InvalidProducerEpochError):
        log.batches.append_batch(
            client_batch(b"x", keys=[b"k"], producer_id=PRODUCER, producer_epoch=1, sequence=0)
        )
    log.truncation.truncate_to(log.end_offset - 1)
    assert log.last_stable_offset == log.end_offset
    again.close()


def headers(segment: ReadableSegment) -> list[BatchInfo]:
    reader = segment.reader()
    return [
        reader.decoder.batch(index)
        for first, stop in reader.chunks(FilePosition(0), segment.base_offset)
        for index in range(first, stop)
    ]
