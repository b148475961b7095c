"""The state of a log: what moves together, and what its holder insists on."""

from typing import Any

import pytest

from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.log_state import NOTHING_UNSYNCED, LogState, UnsyncedFiles
from cordwood.log.partition.state.replica_role import SoleReplica
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


def test_an_append_and_a_sync_leave_the_rest_of_the_state_alone(log: PartitionLog) -> None:
    holder = log._holder
    unsynced = UnsyncedFiles(snapshots=("4.snapshot",))
    with holder.lock:
        holder.commit(log.state._replace(cut_count=3, cleaned_up_to=Offset(1)))
        old = log.state

        holder.extend(Offset(5), Offset(8))
        appended = log.state
        holder.end_sync(Offset(6), Offset(7), unsynced)
        synced = log.state
        holder.end_sync(Offset(6), Offset(7), NOTHING_UNSYNCED)

    assert appended == old._replace(end=Offset(8))
    assert synced == appended._replace(
        high_watermark=Offset(6), durable=Offset(7), unsynced=unsynced
    )
    assert log.state == synced._replace(unsynced=NOTHING_UNSYNCED)
    assert (log._holder._marks.read().high_watermark, log._holder._marks.read().durable) == (6, 7)


def test_the_end_of_a_sync_is_told_even_if_it_moved_nothing(log: PartitionLog) -> None:
    told: list[LogState] = []
    holder = log._holder
    holder.watch(lambda: told.append(log.state))
    before = log.state

    with holder.lock:
        holder.commit(before)
        holder.end_sync(before.high_watermark, before.durable, before.unsynced)

    assert told == [before]


@pytest.mark.parametrize(("high_watermark", "durable"), [(6, 5), (5, 6), (-1, 5), (5, -1)])
def test_a_sync_that_breaks_an_invariant_does_not_end(
    log: PartitionLog, high_watermark: int, durable: int
) -> None:
    before = log.state

    with pytest.raises(AssertionError), log._holder.lock:
        log._holder.end_sync(Offset(high_watermark), Offset(durable), NOTHING_UNSYNCED)

    assert log.state is before


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
