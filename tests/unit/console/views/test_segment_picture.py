from pathlib import Path

import pytest

import cordwood
from cordwood.console.facts.segment_survey import SegmentSurvey
from cordwood.console.views.segment_picture import WIDTH, Picture, segment_picture
from cordwood.format.record import Record
from cordwood.log.rules.topic_config import TopicConfig
from fakes.manual_clock import START_MS, ManualClock

DAY_MS = 86_400_000


@pytest.fixture
def survey(tmp_path: Path) -> SegmentSurvey:
    """Seven segments of a day each, which expire after four days."""
    path = tmp_path / "data"
    config = {"segment.records": "10", "retention.ms": "4d"}
    with cordwood.open(path) as store:
        topic = store.create_topic("orders", partitions=2, config=config)
        store.create_topic("large", config={"segment.records": "10", "retention.bytes": "1KiB"})
        for n in range(65):
            record = Record(value=b"x" * 50, timestamp_ms=START_MS + n * DAY_MS // 10)
            topic.append(record.value, timestamp_ms=record.timestamp_ms, partition=0)
        store.topic("large").append_many([(None, b"y" * 20)] * 15)
    clock = ManualClock(START_MS + 7 * DAY_MS)
    return SegmentSurvey(cordwood.open(path, read_only=True), clock, TopicConfig())


def picture(survey: SegmentSurvey, *, by: str = "bytes", horizon: str = "now") -> Picture:
    ahead = {"now": 0, "1d": DAY_MS, "7d": 7 * DAY_MS}[horizon]
    logs = survey.logs("orders", [0, 1], ahead_ms=ahead)
    positions = {("orders", 0): [("billing", 25)]}
    return segment_picture(logs, by=by, horizon=horizon, positions=positions, bytes_per_s={})


def test_a_lane_shows_each_segment_from_left_to_right(survey: SegmentSurvey) -> None:
    [lane, empty] = picture(survey).lanes

    assert [block.base_offset for block in lane.blocks] == [0, 10, 20, 30, 40, 50, 60]
    assert [block.letter for block in lane.blocks] == ["S"] * 6 + ["A"]
    assert all(
        a.x + a.width <= b.x + 0.02 for a, b in zip(lane.blocks, lane.blocks[1:], strict=False)
    )
    assert lane.blocks[-1].x + lane.blocks[-1].width == pytest.approx(WIDTH, abs=0.1)
    assert [block.state for block in empty.blocks] == ["active"]


@pytest.mark.parametrize(("horizon", "gone"), [("now", 3), ("1d", 4), ("7d", 7)])
def test_a_later_moment_shows_which_segments_are_gone(
    survey: SegmentSurvey, horizon: str, gone: int
) -> None:
    drawn = picture(survey, horizon=horizon)

    assert [block.goes for block in drawn.lanes[0].blocks] == [True] * gone + [False] * (7 - gone)
    assert drawn.goes_count == gone
    assert "retention.ms" in drawn.lanes[0].blocks[0].why


def test_marks_lie_where_their_offsets_are(survey: SegmentSurvey) -> None:
    lane = picture(survey).lanes[0]
    marks = {mark.kind: mark for mark in lane.marks}
    third = lane.blocks[2]

    assert marks["start"].x == 0
    assert marks["end"].x == pytest.approx(WIDTH, abs=0.1)
    assert third.x < marks["group"].x < third.x + third.width
    assert marks["retention"].offset == 30
    assert "stable" not in marks


def test_widths_may_follow_time(survey: SegmentSurvey) -> None:
    lane = picture(survey, by="time").lanes[0]

    assert sum(block.width for block in lane.blocks) <= WIDTH + 0.1
    assert lane.blocks[-1].width < lane.blocks[0].width


def test_a_block_tells_all_of_it_in_words(survey: SegmentSurvey) -> None:
    label = picture(survey).lanes[0].blocks[0].label

    assert label.startswith("offsets 0 to 9, ")
    assert "sealed: it never changes" in label
    assert "deleted by then" in label


def test_deletion_by_size_is_estimated_from_the_rate(survey: SegmentSurvey) -> None:
    logs = survey.logs("large", [0], ahead_ms=DAY_MS)

    calm = segment_picture(logs, by="bytes", horizon="1d", positions={}, bytes_per_s={})
    busy = segment_picture(
        logs, by="bytes", horizon="1d", positions={}, bytes_per_s={("large", 0): 100.0}
    )

    assert calm.goes_count == 0
    assert busy.goes_count >= 1
    assert "today's rate" in busy.lanes[0].blocks[0].why
    assert busy.has_size_estimate
