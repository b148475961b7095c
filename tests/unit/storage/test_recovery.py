"""Opening after a crash: what is torn is cut, what is damaged is reported, the rest is kept."""

import pytest

from cordwood.format.batch import BatchDecoder
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import FilePosition, Offset, TimestampMs
from cordwood.storage.files import read_whole, write_all
from cordwood.storage.recovery import (
    BadStretch,
    Damage,
    RecoveryPlan,
    Walk,
    plan_recovery,
    rebuild_indexes,
    walk_segment,
)
from cordwood.storage.segment import Segment
from cordwood.storage.segment_parts.handle_cache import HandleCache
from cordwood.storage.segment_parts.segment_limits import SegmentLimits
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem


@pytest.fixture
def fs() -> SimulatedFileSystem:
    fs = SimulatedFileSystem()
    fs.make_directory("/log")
    return fs


def put(fs: SimulatedFileSystem, name: str, content: bytes) -> None:
    file = fs.create(f"/log/{name}")
    write_all(file, 0, content)
    file.sync()


# --- batches ------------------------------------------------------------------------------------


def segment_of(
    fs: SimulatedFileSystem, data: bytes, *, interval: int = 0, is_dense: bool = False
) -> Segment:
    put(fs, f"{10:020}.log", data)
    segment = Segment.open_sealed(
        fs,
        "/log",
        Offset(10),
        size=len(data),
        next_offset=Offset(10),
        handles=HandleCache(),
        limits=SegmentLimits(
            index_bytes_max=10_000, index_interval_bytes=interval, is_dense=is_dense
        ),
        is_last=True,
    )
    segment.activate(now_ms=TimestampMs(0))
    return segment


def batches(count: int) -> list[bytes]:
    return [
        bytes(client_batch(b"v", base_offset=10 + n, timestamps=[100 + n])) for n in range(count)
    ]


class Visits:
    """The base offsets a walk showed."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def __call__(self, decoder: BatchDecoder, first: int, stop: int) -> None:
        self.seen += [decoder.batch(n).base_offset for n in range(first, stop)]


def test_a_walk_over_sound_batches_finds_end_and_facts_and_builds_indexes(
    fs: SimulatedFileSystem,
) -> None:
    made = batches(5)
    segment = segment_of(fs, b"".join(made))
    visits = Visits()

    walk = walk_segment(segment, Offset(0), visits)

    assert visits.seen == [10, 11, 12, 13, 14]
    assert (walk.end, walk.next_offset, walk.bad) == (len(b"".join(made)), 15, ())
    assert (segment.size, segment.next_offset, segment.indexes.facts.record_count) == (
        walk.end,
        15,
        5,
    )
    assert segment.largest_timestamp == (104, 14)
    assert segment.indexes.facts.first_batch_timestamp == 100
    assert segment.indexes.offset.count == 4
    assert segment.indexes.time.count == 4


def test_indexes_built_by_a_walk_are_those_built_by_appending(fs: SimulatedFileSystem) -> None:
    times = [5, 3, 9, 9, 2, 12, 12, 1, 30]
    appended = Segment.create(
        fs,
        "/log",
        Offset(10),
        handles=HandleCache(),
        limits=SegmentLimits(index_bytes_max=1000, index_interval_bytes=100),
        now_ms=TimestampMs(0),
    )
    for number, time in enumerate(times):
        batch = client_batch(b"v", base_offset=10 + number, timestamps=[time])
        unplaced = UnplacedBatch(len(batch), 1, TimestampMs(time))
        appended.writer.append(batch, [unplaced], base_offset=Offset(10 + number))
    appended.freeze()
    appended.seal()
    expected = [
        read_whole(fs, f"/log/{10:020}.{kind}", limit=1000) for kind in ("index", "timeindex")
    ]

    fs.remove(f"/log/{10:020}.index")
    fs.remove(f"/log/{10:020}.timeindex")
    rebuild_indexes(appended)

    found = [read_whole(fs, f"/log/{10:020}.{kind}", limit=1000) for kind in ("index", "timeindex")]
    assert found == expected
    assert expected[0]
    assert expected[1]


def test_a_walk_starts_at_the_last_index_entry_below_what_is_trusted(
    fs: SimulatedFileSystem,
) -> None:
    segment = segment_of(fs, b"".join(batches(10)))
    walk_segment(segment, Offset(0), Visits())
    segment.indexes.sync()
    visits = Visits()

    walk = walk_segment(segment, Offset(17), visits)

    assert visits.seen == [16, 17, 18, 19]
    assert (walk.next_offset, segment.indexes.facts.record_count) == (20, 10)
    assert segment.largest_timestamp == (109, 19)
    assert segment.indexes.facts.first_batch_timestamp == 100
    assert segment.indexes.offset.count == 9


@pytest.mark.parametrize(
    "harm",
    [
        lambda data: data[:-3],
        lambda data: bytes(len(data)),
        lambda data: b"\xff" * len(data),
        lambda data: data[8:16] + data[:8] + data[16:],
        lambda data: data[:4] + b"\x00\x00\x00\x07" + data[8:],
    ],
)
@pytest.mark.parametrize("kind", ["index", "timeindex"])
def test_indexes_that_cannot_be_right_are_built_anew(
    fs: SimulatedFileSystem, kind: str, harm: "object"
) -> None:
    segment = segment_of(fs, b"".join(batches(10)))
    walk_segment(segment, Offset(0), Visits())
    segment.indexes.sync()
    path = f"/log/{10:020}.{kind}"
    good = {k: read_whole(fs, f"/log/{10:020}.{k}", limit=1000) for k in ("index", "timeindex")}
    assert callable(harm)
    bad = harm(good[kind])
    file = fs.create(path, exclusive=False)
    write_all(file, 0, bad)
    segment.activate(now_ms=TimestampMs(0))

    walk_segment(segment, Offset(20), Visits())
    segment.indexes.sync()

    assert segment.next_offset == 20
    for offset in range(10, 20):
        position = segment.reader().locate(Offset(offset), segment.hint(Offset(offset)))
        assert position == (offset - 10) * len(batches(1)[0])
    assert segment.largest_timestamp == (109, 19)


@pytest.mark.parametrize("bad", [0, 2, 4])
def test_a_walk_goes_on_behind_a_bad_stretch_and_says_where_it_was(
    fs: SimulatedFileSystem, bad: int
) -> None:
    made = batches(5)
    size = len(made[0])
    data = bytearray(b"".join(made))
    data[bad * size + 40] ^= 1
    visits = Visits()

    walk = walk_segment(segment_of(fs, bytes(data)), Offset(0), visits)

    assert visits.seen == [10 + n for n in range(5) if n != bad]
    [stretch] = walk.bad
    assert (stretch.position, stretch.first_offset) == (bad * size, 10 + bad)
    assert stretch.next_offset == (11 + bad if bad < 4 else None)
    assert walk.next_offset == (15 if bad < 4 else 14)


@pytest.mark.parametrize("torn", [1, 30, 60, 61, 66])
def test_a_torn_last_batch_is_a_bad_stretch_without_anything_behind(
    fs: SimulatedFileSystem, torn: int
) -> None:
    data = b"".join(batches(3))
    size = len(data)

    walk = walk_segment(segment_of(fs, data + batches(4)[3][:torn]), Offset(0), Visits())

    [stretch] = walk.bad
    assert (stretch.position, stretch.first_offset, stretch.next_offset) == (size, 13, None)
    assert (walk.end, walk.next_offset) == (size, 13)


@pytest.mark.parametrize("zeros", [1, 61, 5000])
def test_a_tail_of_zeros_left_by_preallocation_is_torn(fs: SimulatedFileSystem, zeros: int) -> None:
    data = b"".join(batches(3))

    walk = walk_segment(segment_of(fs, data + bytes(zeros)), Offset(0), Visits())

    assert (walk.end, walk.bad[0].next_offset) == (len(data), None)


# --- the decision -------------------------------------------------------------------------------


def walk_of(
    base: int,
    end: int,
    *bad: tuple[int, int | None],
    found_batches: bool = True,
) -> Walk:
    """A segment [base, end) with bad stretches (first offset, next offset); 10 bytes a record."""
    return Walk(
        path=f"{base}.log",
        base_offset=Offset(base),
        file_size=(end - base) * 10 + (7 if bad and bad[-1][1] is None else 0),
        end=FilePosition((end - base) * 10),
        next_offset=Offset(end),
        bad=tuple(
            BadStretch(
                position=(first - base) * 10,
                first_offset=Offset(first),
                next_offset=None if following is None else Offset(following),
                reason="test",
            )
            for first, following in bad
        ),
        found_batches=found_batches,
    )


def plan(
    *walks: Walk, durable: int, is_exact: bool = False, allows_gaps: bool = False
) -> RecoveryPlan:
    return plan_recovery(
        walks, durable=Offset(durable), is_durable_exact=is_exact, allows_gaps=allows_gaps
    )


def ranges(damages: tuple[Damage, ...]) -> list[tuple[int, int]]:
    return [(damage.first_offset, damage.next_offset) for damage in damages]


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("durable", [0, 5, 10])
def test_a_sound_log_is_left_alone(durable: int, is_exact: bool) -> None:
    found = plan(walk_of(0, 5), walk_of(5, 10), durable=durable, is_exact=is_exact)

    assert found == RecoveryPlan(
        kept=2, cut_position=None, end_offset=Offset(10), is_appendable=True, damages=()
    )


@pytest.mark.parametrize("is_exact", [False, True])
@pytest.mark.parametrize("durable", [0, 4, 5])
def test_a_torn_tail_that_was_never_promised_is_cut(durable: int, is_exact: bool) -> None:
    found = plan(walk_of(0, 5, (5, None)), durable=durable, is_exact=is_exact)

    assert found == RecoveryPlan(
        kept=1, cut_position=FilePosition(50), end_offset=Offset(5), is_appendable=True, damages=()
    )


@pytest.mark.parametrize("is_exact", [False, True])
def test_a_bad_tail_that_was_promised_is_damage_and_stays(is_exact: bool) -> None:
    found = plan(walk_of(0, 5, (5, None)), durable=8, is_exact=is_exact)

    assert (found.kept, found.cut_position, found.end_offset) == (1, None, 8)
    assert not found.is_appendable
    assert ranges(found.damages) == [(5, 8)]


@pytest.mark.parametrize("is_exact", [False, True])
def test_damage_in_the_middle_of_what_was_promised_is_reported_and_the_rest_stays(
    is_exact: bool,
) -> None:
    found = plan(walk_of(0, 9, (3, 5)), durable=9, is_exact=is_exact)

    assert (found.kept, found.cut_position, found.end_offset) == (1, None, 9)
    assert found.is_appendable
    assert ranges(found.damages) == [(3, 5)]


def test_past_an_exact_durable_mark_a_bad_stretch_ends_the_log() -> None:
    found = plan(walk_of(0, 9, (6, 8)), durable=5, is_exact=True)

    assert (found.kept, found.cut_position, found.end_offset) == (1, 60, 6)
    assert found.damages == ()


def test_past_a_mark_that_is_not_exact_what_lies_behind_may_have_been_promised() -> None:
    found = plan(walk_of(0, 9, (6, 8)), durable=5)

    assert (found.cut_position, found.end_offset) == (None, 9)
    assert ranges(found.damages) == [(6, 8)]


def test_promised_damage_and_a_torn_tail_are_treated_each_in_its_way() -> None:
    found = plan(walk_of(0, 9, (2, 3), (9, None)), durable=8)

    assert (found.cut_position, found.end_offset) == (90, 9)
    assert ranges(found.damages) == [(2, 3)]


def test_segments_behind_a_cut_go_when_they_hold_nothing() -> None:
    found = plan(walk_of(0, 5, (5, None)), walk_of(7, 7, found_batches=False), durable=5)

    assert (found.kept, found.cut_position, found.end_offset) == (1, 50, 5)
    assert found.damages == ()


def test_segments_behind_a_bad_tail_stay_when_they_may_have_been_promised() -> None:
    found = plan(walk_of(0, 5, (5, None)), walk_of(7, 9), durable=5)

    assert (found.kept, found.cut_position, found.end_offset) == (2, None, 9)
    assert ranges(found.damages) == [(5, 7)]


def test_segments_behind_a_bad_tail_past_an_exact_mark_go() -> None:
    found = plan(walk_of(0, 5, (5, None)), walk_of(7, 9), durable=5, is_exact=True)

    assert (found.kept, found.end_offset) == (1, 5)
    assert found.damages == ()


def test_a_segment_that_ends_too_early_is_damage() -> None:
    found = plan(walk_of(0, 5), walk_of(8, 10), durable=10)

    assert (found.kept, found.end_offset) == (2, 10)
    assert ranges(found.damages) == [(5, 8)]


def test_a_segment_that_ends_too_early_past_an_exact_mark_ends_the_log() -> None:
    found = plan(walk_of(0, 5), walk_of(8, 10), durable=5, is_exact=True)

    assert (found.kept, found.end_offset, found.damages) == (1, 5, ())


def test_gaps_that_compaction_left_are_no_damage() -> None:
    found = plan(walk_of(0, 5), walk_of(8, 10), durable=10, allows_gaps=True)

    assert (found.kept, found.end_offset, found.damages) == (2, 10, ())


@pytest.mark.parametrize("is_exact", [False, True])
def test_a_log_that_ends_before_what_was_promised_is_damage_up_to_there(is_exact: bool) -> None:
    found = plan(walk_of(0, 5), durable=8, is_exact=is_exact)

    assert (found.kept, found.cut_position, found.end_offset) == (1, None, 8)
    assert not found.is_appendable, "the missing offsets must not be given to other records"
    assert ranges(found.damages) == [(5, 8)]


def test_overlapping_segments_after_compaction_are_tolerated() -> None:
    found = plan(walk_of(0, 8), walk_of(5, 10), durable=10, allows_gaps=True)

    assert (found.kept, found.end_offset, found.damages) == (2, 10, ())


def test_damage_says_what_cannot_be_read() -> None:
    [damage] = plan(walk_of(0, 9, (3, 5)), durable=9).damages

    assert str(damage) == ("0.log is damaged at byte 30: test; offsets [3, 5) cannot be read")
