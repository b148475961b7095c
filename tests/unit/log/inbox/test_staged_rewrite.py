"""Segments that were rewritten outside go in when they fit what is there, and only then."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from cordwood.format.batch_header import decode_batch_header, stamp
from cordwood.log.inbox.change_inbox import ChangeInbox, new_request_id, staging_directory
from cordwood.log.inbox.store_change import (
    ChangeAnswer,
    ChangeRequest,
    SegmentPlace,
    StagedSegment,
    SwapSegments,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.quantities import LeaderEpoch, Offset, TimestampMs
from crash.power_cut import CHANGING
from fakes.client_batches import client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, log_of, open_store

CONFIG = {"cleanup.policy": "compact", "segment.records": 4, "file.delete.delay.ms": 0}


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock())


@pytest.fixture
def store(fs: SimulatedFileSystem) -> Store:
    """Three sealed segments of four records each, and an active one of one."""
    store = open_store(fs)
    store.create_topic("state", config=CONFIG)
    for number in range(13):
        log_of(store, "state").append(b"%d" % number, key=b"%d" % (number % 2))
    return store


def batch_at(offset: int, key: bytes, value: bytes | None) -> bytes:
    data = client_batch(value, keys=[key])
    stamp(data, 0, Offset(offset), LeaderEpoch(0))
    return bytes(data)


# What stays of offsets 0 to 7 when the newest of each key does.
KEPT = (batch_at(6, b"0", b"6"), batch_at(7, b"1", b"7"))


def planned_on(log: PartitionLog, count: int = 2) -> tuple[SegmentPlace, ...]:
    return tuple(
        SegmentPlace(
            base_offset=segment.base_offset,
            next_offset=segment.next_offset,
            size=segment.size_bytes,
        )
        for segment in log.segments()[:count]
    )


def swap(store: Store, **rest: Any) -> SwapSegments:
    log = log_of(store, "state")
    change = SwapSegments(
        topic="state",
        topic_id=store.topic("state").topic_id,
        partition=0,
        planned_on=planned_on(log),
        files=(),
    )
    return replace(change, **rest)


def ask(
    fs: SimulatedFileSystem,
    store: Store,
    change: SwapSegments,
    contents: Sequence[tuple[int, bytes]] = ((0, b"".join(KEPT)),),
) -> ChangeAnswer:
    request_id = leave(fs, change, contents)
    store.changes.serve()
    answer = ChangeInbox(fs, DATA).take_answer(request_id)
    assert answer is not None
    return answer


def leave(
    fs: SimulatedFileSystem, change: SwapSegments, contents: Sequence[tuple[int, bytes]]
) -> str:
    request_id = new_request_id()
    directory = staging_directory(DATA, request_id)
    fs.make_directory(directory)
    files = []
    for base, content in contents:
        file = fs.create(os.path.join(directory, f"{base}.log"))
        file.write_at(0, content)
        file.close()
        files.append(StagedSegment(name=f"{base}.log", base_offset=Offset(base), size=len(content)))
    request = ChangeRequest(
        change=replace(change, files=change.files or tuple(files)),
        submitted_ms=TimestampMs(0),
        deadline_ms=TimestampMs(2**60),
    )
    ChangeInbox(fs, DATA).submit(request_id, request)
    return request_id


def offsets(log: PartitionLog) -> list[int]:
    return [int(record.offset or 0) for record in log.read(log.start_offset)]


def test_rewritten_segments_take_the_place_of_those_they_were_made_of(
    fs: SimulatedFileSystem, store: Store
) -> None:
    answer = ask(fs, store, swap(store, cleaned_up_to=Offset(8)))

    log = log_of(store, "state")
    assert answer.outcome == "done", answer.reason
    assert offsets(log) == [6, 7, *range(8, 13)]
    assert log.state.cleaned_up_to == 8
    assert [segment.base_offset for segment in log.segments()] == [0, 8, 12]
    store.close()
    assert offsets(log_of(open_store(fs), "state")) == [6, 7, *range(8, 13)]


def test_several_may_take_the_place_of_several(fs: SimulatedFileSystem, store: Store) -> None:
    first, second = KEPT

    answer = ask(fs, store, swap(store), [(0, first), (7, second)])

    log = log_of(store, "state")
    assert answer.outcome == "done", answer.reason
    assert [segment.base_offset for segment in log.segments()] == [0, 7, 8, 12]
    assert offsets(log) == [6, 7, *range(8, 13)]
    assert log.state.cleaned_up_to == 0


def test_the_same_swap_a_second_time_is_found_to_be_made(
    fs: SimulatedFileSystem, store: Store
) -> None:
    change = swap(store, cleaned_up_to=Offset(8))
    ask(fs, store, change)

    assert ask(fs, store, change).outcome == "skipped"


@pytest.mark.parametrize(
    "meanwhile",
    [
        lambda store: log_of(store, "state").delete_before(5),
        lambda store: log_of(store, "state").truncation.truncate_to(6),
        lambda store: store.compact("state", force=True),
    ],
)
def test_a_log_that_changed_meanwhile_is_left_as_it_is(
    fs: SimulatedFileSystem, store: Store, meanwhile: Callable[[Store], object]
) -> None:
    change = swap(store)
    meanwhile(store)
    before = offsets(log_of(store, "state"))

    answer = ask(fs, store, change)

    assert answer.outcome == "refused"
    assert "plan again" in answer.reason
    assert offsets(log_of(store, "state")) == before


@pytest.mark.parametrize(
    ("contents", "reason"),
    [
        ([(0, KEPT[0] + KEPT[1][:-1])], "0.log"),
        ([(0, KEPT[1] + KEPT[0])], "0.log"),
        ([(0, batch_at(8, b"0", b"8"))], "0.log"),
        ([(1, KEPT[0])], "must begin where"),
        ([(0, KEPT[0]), (8, KEPT[1])], "not in order"),
        ([(0, b"rubbish" * 20)], "0.log"),
    ],
)
def test_what_cannot_be_those_segments_is_refused(
    fs: SimulatedFileSystem, store: Store, contents: list[tuple[int, bytes]], reason: str
) -> None:
    answer = ask(fs, store, swap(store), contents)

    assert answer.outcome == "refused"
    assert reason in answer.reason
    assert offsets(log_of(store, "state")) == list(range(13))
    assert not [e for e in fs.list(f"{DATA}/state-0") if e.name.endswith(".cleaned")]


def test_a_flipped_bit_is_found(fs: SimulatedFileSystem, store: Store) -> None:
    content = bytearray(b"".join(KEPT))
    content[-2] ^= 4

    answer = ask(fs, store, swap(store), [(0, bytes(content))])

    assert answer.outcome == "refused"


def test_the_last_batch_of_a_producer_must_stay(fs: SimulatedFileSystem) -> None:
    store = open_store(fs)
    store.create_topic("state", config=CONFIG)
    log = log_of(store, "state")
    log.batches.append_batch(client_batch(b"p", keys=[b"0"], producer_id=9, sequence=0))
    for number in range(1, 13):
        log.append(b"%d" % number, key=b"%d" % (number % 2))

    answer = ask(fs, store, swap(store))

    assert answer.outcome == "refused"
    assert "last batch of each producer must stay" in answer.reason


def test_a_topic_that_keeps_everything_is_not_rewritten(
    fs: SimulatedFileSystem, store: Store
) -> None:
    change = swap(store)
    store.alter_topic("state", config={"cleanup.policy": "delete"})

    assert "not compacted" in ask(fs, store, change).reason


def test_a_topic_made_anew_is_another(fs: SimulatedFileSystem, store: Store) -> None:
    change = swap(store)
    store.delete_topic("state")
    store.create_topic("state", config=CONFIG)

    assert "created again" in ask(fs, store, change).reason


@pytest.mark.parametrize("is_power_cut", [False, True])
def test_a_crash_at_any_step_leaves_the_old_segments_or_the_new(
    fs: SimulatedFileSystem, store: Store, is_power_cut: bool
) -> None:
    change = swap(store, cleaned_up_to=Offset(8))
    left: list[SimulatedFileSystem] = []
    rng = Random(4)
    leave_one: Callable[[], SimulatedFileSystem] = (
        (lambda: fs.crash(rng)) if is_power_cut else fs.kill
    )
    fs.watch = lambda operation, _: left.append(leave_one()) if operation in CHANGING else None
    ask(fs, store, change)
    fs.watch = None

    outcomes = set()
    for crashed in left:
        again = open_store(crashed)
        found = offsets(log_of(again, "state"))
        assert found in ([*range(13)], [6, 7, *range(8, 13)])
        assert not again.damages()
        outcomes.add(len(found))
    assert outcomes == {13, 7}


def test_headers_of_the_batches_here_are_what_they_should_be() -> None:
    assert [decode_batch_header(batch).base_offset for batch in KEPT] == [6, 7]
