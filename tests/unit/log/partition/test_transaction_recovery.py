"""After a crash the index of aborted transactions is what it was, or is made again."""

import shutil
from pathlib import Path

import pytest

import cordwood
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.quantities import Offset, ProducerId, TimestampMs
from fakes.client_batches import NOW, client_batch, marker_batch

PRODUCER = 7
TURNS = 12
KEPT = {"retention.ms": "-1"}  # the batches bear old timestamps


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
    marker = MarkerFacts(
        producer_id=ProducerId(PRODUCER),
        producer_epoch=0,
        coordinator_epoch=0,
        offset=Offset(0),
        timestamp=TimestampMs(NOW),
        is_abort=is_abort,
    )
    log.batches.append_marker(marker_batch(PRODUCER, is_abort=is_abort), marker)


def aborted(log: PartitionLog) -> list[AbortedTransaction]:
    return [
        entry for segment in log.view().segments for entry in segment.transaction_index.entries()
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
