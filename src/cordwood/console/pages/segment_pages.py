"""The segments of a topic as a picture, and one segment with its files and batches."""

from typing import Final

from cordwood.console.facts.cluster_facts import Place, TopicFacts
from cordwood.console.facts.segment_survey import SegmentSurvey, SurveyedSegment
from cordwood.console.pages.page import PageNotFoundError, PageRequest
from cordwood.console.views.segment_picture import (
    BY_BYTES,
    BY_TIME,
    HORIZONS,
    STATE_WORDS,
    Picture,
    segment_picture,
)
from cordwood.log.inspection.segment_check import SegmentFindings
from cordwood.value_class import dataclass, replace

LANES_MAX: Final = 24
_BY: Final = {BY_BYTES: "Bytes", BY_TIME: "Time"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentsView:
    topic: TopicFacts
    picture: Picture
    first_partition: int
    partition_count: int
    page: int
    page_count: int
    state_words: dict[str, str]


def survey_of(request: PageRequest) -> SegmentSurvey:
    survey = request.console.survey
    if survey is None:
        raise PageNotFoundError(
            "Segments are files, and the files of this broker are not on this machine."
        )
    return survey


def positions_in(request: PageRequest, topic: str) -> dict[Place, list[tuple[str, int]]]:
    found: dict[Place, list[tuple[str, int]]] = {}
    for group in request.snapshot.groups.values():
        for committed in group.committed:
            if committed.topic == topic:
                place = (topic, committed.partition)
                found.setdefault(place, []).append((group.name, committed.offset))
    return found


def show_segments(request: PageRequest) -> SegmentsView:
    topic = request.topic()
    survey = survey_of(request)
    by = request.choice("by", _BY, BY_BYTES)
    horizon = request.choice("in", HORIZONS, "now")
    numbers = survey.partition_numbers(topic.name)
    page_count = max((len(numbers) + LANES_MAX - 1) // LANES_MAX, 1)
    page = min(max(request.number("page", 1) or 1, 1), page_count)
    chosen = numbers[(page - 1) * LANES_MAX : page * LANES_MAX]
    logs = survey.logs(topic.name, chosen, ahead_ms=HORIZONS[horizon][1])
    rates = {place: rate.bytes_per_s for place, rate in request.snapshot.rates.items()}
    return SegmentsView(
        topic=topic,
        picture=segment_picture(
            logs,
            by=by,
            horizon=horizon,
            positions=positions_in(request, topic.name),
            bytes_per_s=rates,
        ),
        first_partition=chosen[0] if chosen else 0,
        partition_count=len(numbers),
        page=page,
        page_count=page_count,
        state_words=STATE_WORDS,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentView:
    topic: TopicFacts
    partition: int
    surveyed: SurveyedSegment
    verdict: str
    reason: str
    expires_ms: int | None
    after_bytes: int | None
    state: str
    state_words: str
    groups: tuple[tuple[str, int], ...]
    findings: SegmentFindings | None = None
    previous: int | None = None
    following: int | None = None


def show_segment(request: PageRequest) -> SegmentView:
    topic = request.topic()
    partition, base = request.path_number("partition"), request.path_number("base")
    surveyed = survey_of(request).segment(topic.name, partition, base)
    if surveyed is None:
        raise PageNotFoundError(
            f"{topic.name}-{partition} has no segment that begins at offset {base}. "
            "It may have been deleted or replaced."
        )
    picture = segment_picture(
        [surveyed.log], by=BY_BYTES, horizon="now", positions={}, bytes_per_s={}
    )
    block = next((b for b in picture.lanes[0].blocks if b.base_offset == base), None)
    decision = next(d for d in surveyed.log.retention.segments if d.base_offset == base)
    state = surveyed.segment.state if block is None else block.state
    groups = positions_in(request, topic.name).get((topic.name, partition), [])
    bases = [segment.base_offset for segment in surveyed.log.segments]
    at = bases.index(surveyed.segment.base_offset)
    return SegmentView(
        topic=topic,
        partition=partition,
        surveyed=surveyed,
        verdict=decision.verdict.value,
        reason=decision.reason,
        expires_ms=decision.expires_ms,
        after_bytes=decision.after_bytes,
        state=state,
        state_words=STATE_WORDS.get(state, state),
        groups=tuple(
            (name, offset)
            for name, offset in groups
            if surveyed.segment.base_offset <= offset < surveyed.segment.next_offset
        ),
        previous=bases[at - 1] if at else None,
        following=bases[at + 1] if at + 1 < len(bases) else None,
    )


def verify_segment(request: PageRequest) -> SegmentView:
    """Reads every byte of the segment. Changes nothing, so it needs no right to change."""
    shown = show_segment(request)
    findings = survey_of(request).verify(
        shown.topic.name, shown.partition, shown.surveyed.segment.base_offset
    )
    if findings is None:
        raise PageNotFoundError("The segment was deleted while it was checked.")
    return replace(shown, findings=findings)
