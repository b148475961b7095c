"""Tasks and shares, from plain values."""

import pickle
import time

from hypothesis import given
from hypothesis import strategies as st

from cordwood.quantities import GIB
from cordwood.spark.source.log_place import LogPlace
from cordwood.spark.source.planning import OffsetRange, Piece, merge_pieces, plan_tasks, share
from cordwood.spark.source.task_list import TaskList

PLACE = LogPlace(
    topic="a",
    partition=0,
    topic_id="",
    directory="/d/a-0",
    log_start=0,
    allows_gaps=False,
    was_compacted=False,
    archive_url="",
)


def ranges(*counts: int) -> list[OffsetRange]:
    return [OffsetRange(place=PLACE, start=10, stop=10 + count) for count in counts]


counts = st.lists(st.integers(1, 1000), min_size=1, max_size=6)


@given(counts, st.none() | st.integers(1, 300), st.none() | st.integers(1, 50))
def test_tasks_cover_every_offset_once_and_keep_to_the_limits(
    sizes: list[int], records_max: int | None, count_min: int | None
) -> None:
    tasks = plan_tasks(ranges(*sizes), records_max=records_max, count_min=count_min)

    assert sum(task.count for task in tasks) == sum(sizes)
    assert records_max is None or all(task.count <= records_max for task in tasks)
    assert count_min is None or len(tasks) >= min(count_min, sum(sizes))


def test_parts_of_a_range_follow_each_other() -> None:
    tasks = plan_tasks(ranges(10), records_max=4, count_min=None)

    assert [(task.start, task.stop) for task in tasks] == [(10, 13), (13, 16), (16, 20)]


def test_a_large_range_is_cut_into_more_parts_than_a_small_one() -> None:
    tasks = plan_tasks(ranges(90, 10), records_max=None, count_min=10)

    assert [task.count for task in tasks] == [10] * 10


def test_nothing_is_cut_without_need() -> None:
    assert plan_tasks(ranges(90, 10), records_max=None, count_min=2) == ranges(90, 10)
    assert plan_tasks([], records_max=1, count_min=5) == []


def test_small_pieces_are_put_together_up_to_the_target() -> None:
    pieces = [Piece(start=at, stop=at + 1, size_bytes=size) for at, size in enumerate([3, 3, 3, 9])]

    merged = merge_pieces(pieces, target_bytes=6)

    assert [(piece.start, piece.stop, piece.size_bytes) for piece in merged] == [
        (0, 2, 6),
        (2, 3, 3),
        (3, 4, 9),
    ]


backlogs = st.dictionaries(
    st.tuples(st.just("a"), st.integers(0, 20)), st.integers(0, 10_000), max_size=10
)


@given(backlogs, st.integers(1, 5000))
def test_a_limit_is_shared_in_proportion_and_starves_nobody(
    backlog: dict[tuple[str, int], int], limit: int
) -> None:
    shares = share(backlog, limit)

    for partition, count in backlog.items():
        got = shares.get(partition, 0)
        assert got <= count
        assert (got > 0) == (count > 0)
    busy = sum(1 for count in backlog.values() if count)
    assert sum(shares.values()) <= max(limit, busy) + busy


def test_a_hundred_thousand_tasks_are_planned_packed_and_sent_in_seconds() -> None:
    count = 100_000
    pieces = (Piece(start=n, stop=n + 1, size_bytes=1 * GIB) for n in range(count))
    started_s = time.process_time()

    merged = merge_pieces(pieces, target_bytes=1 * GIB)
    ranges = [OffsetRange(place=PLACE, start=piece.start, stop=piece.stop) for piece in merged]
    packed = pickle.dumps(TaskList(plan_tasks(ranges, records_max=None, count_min=None)))
    unpacked = pickle.loads(packed)

    assert time.process_time() - started_s < 10
    assert len(packed) < 30 * count
    assert len(unpacked) == count
    assert (unpacked[count - 1].start, unpacked[count - 1].place) == (count - 1, PLACE)
