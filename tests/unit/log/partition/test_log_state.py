"""The state of a log: what moves together, and what its holder insists on."""

from typing import Any

import pytest

from cordwood.log.partition.log_state import NOTHING_UNSYNCED, LogState, UnsyncedFiles
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.replica_role import SoleReplica
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import new_log


@pytest.fixture
def log() -> PartitionLog:
    log = new_log(SimulatedFileSystem(), {"segment.records": 2})[1]
    for number in range(5):
        log.append(b"%d" % number)
    return log


def test_an_append_moves_everything_that_it_promises(log: PartitionLog) -> None:
    state = log.state

    assert (state.start, state.high_watermark, state.end, state.durable) == (0, 5, 5, 5)
    assert state.recovery_point == 0
    assert [segment.base_offset for segment in state.segments] == [0, 2, 4]
    assert state.unsynced == NOTHING_UNSYNCED


def test_moving_the_offsets_leaves_the_rest_alone(log: PartitionLog) -> None:
    old = log.state._replace(cut_count=3, cleaned_up_to=Offset(1))

    new = old.moved(
        high_watermark=Offset(6), end=Offset(8), durable=Offset(7), unsynced=NOTHING_UNSYNCED
    )

    assert new == old._replace(high_watermark=Offset(6), end=Offset(8), durable=Offset(7))


@pytest.mark.parametrize(
    "wrong",
    [
        {"start": 6, "high_watermark": 5},
        {"high_watermark": 6},
        {"end": 4},
        {"durable": 6},
        {"recovery_point": 6},
    ],
)
def test_a_state_that_breaks_an_invariant_is_not_taken(
    log: PartitionLog, wrong: dict[str, Any]
) -> None:
    before = log.state

    with pytest.raises(AssertionError), log._holder.lock:
        log._holder.commit(before._replace(**wrong))

    assert log.state is before


def test_nothing_from_a_cut_on_is_vouched_for(log: PartitionLog) -> None:
    log.syncing.checkpoint()

    lowered = log.state._replace(cleaned_up_to=Offset(4)).lowered_to(Offset(3))

    assert (lowered.durable, lowered.high_watermark, lowered.cleaned_up_to) == (3, 3, 3)
    assert lowered.recovery_point == 2, "recovery begins with a whole segment"
    assert lowered.end == 5, "the bytes are still there"
    assert lowered.cut_count == log.state.cut_count + 1


def test_files_that_came_during_a_sync_are_left_for_the_next(log: PartitionLog) -> None:
    first, second, _ = log.state.segments
    names = SimulatedFileSystem().open_directory("/")
    synced = UnsyncedFiles((first,), ("/a",), names)
    now = synced.plus(second)._replace(snapshots=("/a", "/b"))

    def left(now: UnsyncedFiles, unwritten: UnsyncedFiles = NOTHING_UNSYNCED) -> UnsyncedFiles:
        return now.after_sync_of(synced, unwritten=unwritten)

    assert left(synced) == NOTHING_UNSYNCED
    assert left(now) == UnsyncedFiles((second,), ("/b",), names)
    unwritten = UnsyncedFiles((first,), ("/a",))
    assert left(synced, unwritten) == unwritten


@pytest.mark.parametrize(
    ("durability", "held_from", "shown"),
    [("disk", None, 5), ("os", None, 9), ("os", 6, 6), ("disk", 6, 5)],
)
def test_the_sole_replica_shows_what_the_topic_promises(
    log: PartitionLog, durability: str, held_from: int | None, shown: int
) -> None:
    config = TopicConfig.parse({"durability": durability})
    state: LogState = log.state._replace(
        high_watermark=Offset(4), held_from=None if held_from is None else Offset(held_from)
    )

    seen = SoleReplica().high_watermark(state, config, end=Offset(9), durable=Offset(5))

    assert seen == shown


def test_a_sync_that_ends_late_does_not_take_back_what_readers_saw(log: PartitionLog) -> None:
    """A topic that promised the kernel's word now promises the disk; an older sync ends."""
    state = log.state._replace(high_watermark=Offset(5), durable=Offset(2))

    shown = SoleReplica().high_watermark(state, TopicConfig(), end=Offset(5), durable=Offset(3))

    assert shown == 5
