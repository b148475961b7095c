"""The list of segments that a compacted partition must have."""

import pytest

from cordwood.errors import FormatError
from cordwood.format.small_files.segment_manifest import (
    Hole,
    SegmentManifest,
    decode_manifest,
    encode_manifest,
    missing_between,
)
from cordwood.quantities import Offset

MANIFEST = SegmentManifest(
    generation=3,
    end=Offset(80),
    segments=(Offset(0), Offset(10), Offset(20), Offset(70)),
    replaced=(Offset(30), Offset(40), Offset(50)),
    replacing=(Offset(30), Offset(45)),
)
KEPT = [0, 10, 20, 70]
OLD = [30, 40, 50]
NEW = [30, 45]


def nowhere(base: Offset) -> Offset:
    return Offset(base + 1)


def holes(present: list[int], start: int = 0) -> list[Hole]:
    bases = [Offset(base) for base in [*present, 80]]
    return MANIFEST.holes(bases, start=Offset(start), end_of=nowhere)


def test_a_manifest_is_read_as_it_was_written() -> None:
    assert decode_manifest(encode_manifest(MANIFEST)) == MANIFEST


@pytest.mark.parametrize("content", [b"", b"x", encode_manifest(MANIFEST)[:-1]])
def test_anything_else_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        decode_manifest(content)


def test_the_replaced_segments_or_the_replacing_ones_are_expected() -> None:
    assert holes([*KEPT, *OLD]) == []
    assert holes([*KEPT, *NEW]) == []


@pytest.mark.parametrize(
    ("missing", "expected"),
    [
        (0, Hole(Offset(0), Offset(10))),
        (10, Hole(Offset(10), Offset(20))),
        (45, Hole(Offset(45), Offset(70))),
        (70, Hole(Offset(70), Offset(80))),
    ],
)
def test_each_missing_segment_is_a_hole_up_to_the_next_one(missing: int, expected: Hole) -> None:
    present = [base for base in [*KEPT, *NEW] if base != missing]

    assert holes(present) == [expected]


def test_a_segment_missing_from_the_old_group_is_a_hole() -> None:
    assert holes([*KEPT, 30, 50]) == [Hole(Offset(40), Offset(50))]


def test_a_segment_that_was_merged_into_the_one_before_is_not_missing() -> None:
    present = [Offset(base) for base in (0, *NEW, 80)]
    ends = {Offset(0): Offset(15), Offset(45): Offset(60)}

    found = MANIFEST.holes(present, start=Offset(0), end_of=ends.__getitem__)

    assert found == [Hole(Offset(20), Offset(30)), Hole(Offset(70), Offset(80))]


def test_neighbours_that_are_missing_are_one_hole() -> None:
    assert holes([0, 70, *NEW]) == [Hole(Offset(10), Offset(30))]


def test_what_retention_deleted_is_no_hole() -> None:
    assert holes([20, 70, *NEW], start=20) == []
    assert holes([70, *NEW], start=25) == [Hole(Offset(25), Offset(30))]


def test_a_cut_forgets_the_segments_that_it_removes() -> None:
    cut = MANIFEST.cut_at(Offset(40))

    assert cut.generation == 4
    assert cut.end == 80
    present = [Offset(0), Offset(10), Offset(20), Offset(30)]
    assert cut.holes(present, start=Offset(0), end_of=nowhere) == []


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (10, 10, None),
        (5, 10, None),
        (5, 60, Hole(Offset(20), Offset(30))),
        (35, 60, Hole(Offset(50), Offset(60))),
        (55, 60, Hole(Offset(55), Offset(60))),
        (15, 40, Hole(Offset(20), Offset(30))),
        (25, 40, Hole(Offset(25), Offset(30))),
        (30, 40, None),
    ],
)
def test_offsets_between_segments_are_missing_in_holes_and_above_all_gaps(
    start: int, stop: int, expected: Hole | None
) -> None:
    known = [Hole(Offset(20), Offset(30))]

    assert missing_between(known, Offset(start), Offset(stop), Offset(50)) == expected
