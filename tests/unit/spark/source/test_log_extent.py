"""Planning by bytes: cut at segments and index entries, and never beside the range."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.spark.source.log_extent import offset_behind, pieces_between, size_between
from cordwood.spark.source.opened_source import open_source

RECORD = b"x" * 1000


@pytest.fixture
def log(tmp_path: Path) -> Iterator[ReadOnlyLog]:
    """Nine segments of about 100 KB and an active one, an index entry for every 4 KB."""
    config = {"segment.records": "100", "index.interval.bytes": "4096"}
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("a", config=config)
        for _ in range(190):
            topic.append_many([(None, RECORD)] * 5)
    with cordwood.open(tmp_path, read_only=True) as store:
        yield store.topic("a").partition(0)


@pytest.mark.parametrize("target_bytes", [1, 10_000, 50_000, 10**9])
@pytest.mark.parametrize(("start", "stop"), [(0, 950), (37, 38), (120, 777), (900, 950)])
def test_pieces_cover_the_range_without_gap(
    log: ReadOnlyLog, start: int, stop: int, target_bytes: int
) -> None:
    pieces = list(pieces_between(log, start, stop, target_bytes=target_bytes))

    assert [piece.start for piece in pieces] == [start, *(piece.stop for piece in pieces[:-1])]
    assert pieces[-1].stop == stop


def test_pieces_are_cut_at_segments_and_within_large_ones(log: ReadOnlyLog) -> None:
    by_segment = list(pieces_between(log, 0, 950, target_bytes=10**9))
    smaller = list(pieces_between(log, 0, 950, target_bytes=25_000))

    assert [piece.start for piece in by_segment] == list(range(0, 950, 100))
    assert sum(piece.size_bytes for piece in by_segment) == log.size_bytes
    assert 36 <= len(smaller) <= 42
    assert max(piece.size_bytes for piece in smaller) < 45_000


def test_the_size_of_a_range_is_about_that_of_its_records(log: ReadOnlyLog) -> None:
    assert size_between(log, 150, 450) == pytest.approx(300 * 1010, abs=15_000)


def test_so_many_bytes_behind_an_offset_lies_an_offset(log: ReadOnlyLog) -> None:
    near = offset_behind(log, 150, 950, size_bytes=100_000)

    assert near == pytest.approx(250, abs=20)
    assert offset_behind(log, 150, 160, size_bytes=10**9) == 160
    assert 150 < offset_behind(log, 150, 950, size_bytes=1) < 170


def test_no_index_is_opened_for_segments_that_are_read_whole(log: ReadOnlyLog) -> None:
    list(pieces_between(log, 0, 950, target_bytes=10**9))

    assert len(log._files._handles) <= 1  # the last segment, whose size is looked up


def test_an_archived_segment_is_cut_evenly_without_its_index(tmp_path: Path) -> None:
    config = {"archive.url": f"file://{tmp_path}/archive", "segment.records": "100"}
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("a", config=config)
        for _ in range(30):
            topic.append_many([(None, RECORD)] * 5)
        store.archive_now()
    with open_source([f"file://{tmp_path}/archive"], lambda *_: True) as source:
        log = source.look()["a"].logs[0]
        for index in (tmp_path / "archive").rglob("*index*"):
            index.write_bytes(b"not asked for")

        pieces = list(pieces_between(log, 0, 100, target_bytes=25_000))

    assert [piece.start for piece in pieces] == [0, 25, 50, 75]
    assert all(24_000 < piece.size_bytes < 27_000 for piece in pieces)
