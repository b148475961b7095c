"""Manifests survive their bytes, and nothing else passes for one."""

from __future__ import annotations

import json
from dataclasses import replace
from uuid import UUID

import pytest

from cordwood.archive.manifests.manifest import (
    ArchivedTopic,
    GroupMoment,
    GroupOffset,
    Manifest,
    parse_manifest,
    parse_topic,
    render_manifest,
    render_topic,
)
from cordwood.archive.manifests.segment_copy import ArchivedFile, SegmentCopy
from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.file_names import FileKind
from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.quantities import LeaderEpoch, Offset, TimestampMs

TOPIC_ID = UUID(int=0x1234567890ABCDEF1234567890ABCDEF)


def copy(base: int, end: int) -> SegmentCopy:
    return SegmentCopy(
        copy_id=f"{base:032x}",
        base_offset=Offset(base),
        next_offset=Offset(end),
        first_timestamp=TimestampMs(-1),
        max_timestamp=TimestampMs(base),
        max_timestamp_offset=Offset(base),
        modified_ms=TimestampMs(5),
        archived_ms=TimestampMs(6),
        files=(ArchivedFile(kind=FileKind.LOG, size=10, sha256="ab"),),
    )


def epoch(number: int, start: int) -> EpochEntry:
    return EpochEntry(epoch=LeaderEpoch(number), start_offset=Offset(start))


MANIFEST = Manifest(
    generation=7,
    topic="orders",
    topic_id=TOPIC_ID,
    partition=3,
    owner="store",
    allows_gaps=False,
    start=Offset(1),
    epochs=(epoch(0, 0), epoch(2, 5), epoch(3, 8)),
    segments=(copy(0, 4), copy(4, 8), copy(8, 9)),
)
TOPIC = ArchivedTopic(
    generation=1,
    topic="orders",
    topic_id=TOPIC_ID,
    partitions=4,
    owner="store",
    updated_ms=TimestampMs(9),
    config={"segment.bytes": "1048576"},
    moments=(
        GroupMoment(
            at_ms=TimestampMs(3),
            offsets=(
                GroupOffset(
                    group="größe",
                    partition=0,
                    offset=Offset(5),
                    metadata="m",
                    committed_ms=TimestampMs(2),
                ),
            ),
        ),
    ),
)


def test_a_manifest_survives_its_bytes() -> None:
    assert parse_manifest(render_manifest(MANIFEST)) == MANIFEST


def test_a_topic_survives_its_bytes() -> None:
    assert parse_topic(render_topic(TOPIC)) == TOPIC


def test_any_changed_byte_is_noticed() -> None:
    content = render_manifest(MANIFEST)
    for at in range(0, len(content) - 1, 7):
        damaged = bytearray(content)
        damaged[at] ^= 0x01

        with pytest.raises(FormatError):
            parse_manifest(bytes(damaged))


@pytest.mark.parametrize("size", [0, 1, 50, -2])
def test_a_piece_of_a_manifest_is_none(size: int) -> None:
    with pytest.raises(FormatError):
        parse_manifest(render_manifest(MANIFEST)[:size])


@pytest.mark.parametrize(
    "content", [b"[]", b"null", b"{}", b'{"content":1,"checksum":""}', b"\xff"]
)
def test_other_json_is_no_manifest(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_manifest(content)


def test_one_object_does_not_pass_for_the_other() -> None:
    with pytest.raises(FormatError):
        parse_topic(render_manifest(MANIFEST))


def test_a_later_version_is_refused_as_such() -> None:
    import hashlib

    content = json.loads(render_manifest(MANIFEST))["content"]
    content["version"] = 3
    body = json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    sealed = b'{"checksum":"%s","content":%s}' % (hashlib.sha256(body).hexdigest().encode(), body)

    with pytest.raises(UnsupportedFormatError):
        parse_manifest(sealed)


def test_segments_that_do_not_touch_are_refused() -> None:
    with pytest.raises(FormatError, match="gap between segments"):
        replace(MANIFEST, segments=(copy(0, 4), copy(5, 8)))


@pytest.mark.parametrize(
    ("start", "end", "bases", "new_start"),
    [
        (0, 100, [0, 4, 8], 1),
        (4, 100, [4, 8], 4),
        (5, 100, [4, 8], 5),
        (9, 100, [], 9),
        (0, 8, [0, 4], 1),
        (0, 7, [0], 1),
        (50, 60, [], 50),
    ],
)
def test_what_lies_outside_is_forgotten_in_whole_segments(
    start: int, end: int, bases: list[int], new_start: int
) -> None:
    kept = MANIFEST.kept(Offset(start), Offset(end))

    assert [segment.base_offset for segment in kept.segments] == bases
    assert kept.start == new_start


def test_keeping_everything_changes_nothing() -> None:
    assert MANIFEST.kept(Offset(0), Offset(100)) is MANIFEST


def test_epochs_follow_what_is_kept() -> None:
    assert MANIFEST.kept(Offset(5), Offset(8)).epochs == (epoch(2, 5),)


def test_epochs_that_start_behind_a_copy_wait_for_theirs() -> None:
    empty = replace(MANIFEST, segments=(), epochs=(), start=Offset(0))

    one = empty.plus(copy(0, 4), MANIFEST.epochs, Offset(2))

    assert one.epochs == (epoch(0, 0),)
    assert one.start == 2


def test_the_newest_moment_not_after_a_time_counts() -> None:
    topic = TOPIC
    for at in (10, 20, 30):
        topic = topic.plus(GroupMoment(at_ms=TimestampMs(at), offsets=()))

    assert topic.moment_at(2) is None
    assert [
        m.at_ms for m in (topic.moment_at(20), topic.moment_at(29), topic.moment_at(None)) if m
    ] == [20, 20, 30]


def test_moments_are_bounded_and_the_newest_stay() -> None:
    topic = TOPIC
    for at in range(2000):
        topic = topic.plus(GroupMoment(at_ms=TimestampMs(at), offsets=()))

    times = [moment.at_ms for moment in topic.moments]
    assert len(times) <= 256
    assert times[-50:] == list(range(1950, 2000))
    assert times[0] <= 3
