"""The segments of a topic as a picture: a lane for each partition, a block for each segment. Pure.

Widths follow bytes or time. What a block is, is told three times: by its fill, by a letter and by
the text of its link, so that nobody depends on colours.

    A  active       records are appended to it
    S  sealed       it never changes, until it is compacted, archived or deleted
    C  compacted    only the newest record of each key, as of the last compaction
    L  archived     the archive has a copy, and it is here too
    R  remote       only the archive has it
"""

from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.console.facts.cluster_facts import Place
from cordwood.console.facts.segment_survey import SurveyedLog
from cordwood.console.views.words import count_in_words, moment_in_words, size_in_words
from cordwood.log.reading.segment_info import SegmentInfo
from cordwood.log.rules.retention import SegmentDecision, Verdict
from cordwood.value_class import dataclass

WIDTH: Final = 1_000.0
BLOCKS_MAX: Final = 300  # in a lane; older segments are drawn as one block
BY_BYTES: Final = "bytes"
BY_TIME: Final = "time"
_BLOCK_WIDTH_MIN: Final = 7.0
_LETTER_WIDTH_MIN: Final = 14.0
_GROUPS_SHOWN: Final = 12

HORIZONS: Final[dict[str, tuple[str, int]]] = {
    "now": ("Now", 0),
    "1h": ("In an hour", 3_600_000),
    "1d": ("In a day", 86_400_000),
    "7d": ("In a week", 7 * 86_400_000),
}

_LETTERS: Final = {
    "active": "A",
    "sealed": "S",
    "compacted": "C",
    "archived": "L",
    "remote": "R",
    "older": "…",
}
STATE_WORDS: Final = {
    "active": "active: records are appended to it",
    "sealed": "sealed: it never changes",
    "compacted": "compacted: only the newest record of each key",
    "archived": "archived, and here too",
    "remote": "only in the archive",
    "older": "older segments, drawn as one",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A segment in the picture. `goes` says whether it is deleted by then, `why` why or why not."""

    base_offset: int
    next_offset: int
    size_bytes: int
    state: str
    letter: str
    first_timestamp_ms: int | None
    last_timestamp_ms: int | None
    is_damaged: bool
    goes: bool
    drops_local: bool
    why: str
    expires_ms: int | None
    after_bytes: int | None
    x: float
    width: float
    segment_count: int = 1

    @property
    def has_letter(self) -> bool:
        return self.width >= _LETTER_WIDTH_MIN

    @property
    def label(self) -> str:
        """The block in words."""
        parts = [
            f"offsets {count_in_words(self.base_offset)} to {count_in_words(self.next_offset - 1)}"
            if self.next_offset > self.base_offset
            else f"empty, from offset {count_in_words(self.base_offset)}",
            size_in_words(self.size_bytes),
            STATE_WORDS[self.state],
        ]
        if self.last_timestamp_ms is not None:
            parts.append(f"newest record {moment_in_words(self.last_timestamp_ms)}")
        if self.is_damaged:
            parts.append("damaged")
        if self.goes:
            parts.append(f"deleted by then: {self.why}")
        elif self.drops_local:
            parts.append(f"its local copy is deleted by then: {self.why}")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A vertical line: log start, high watermark, last stable offset, retention, or a group."""

    kind: str
    label: str
    offset: int
    x: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    partition: int
    blocks: tuple[Block, ...]
    marks: tuple[Mark, ...]
    start_offset: int
    high_watermark: int
    last_stable_offset: int
    size_bytes: int
    goes_count: int
    goes_bytes: int
    damage_count: int
    hidden_groups: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    lanes: tuple[Lane, ...]
    by: str
    horizon: str
    horizon_title: str
    states: tuple[str, ...]  # that occur, for the legend
    goes_count: int
    goes_bytes: int
    has_size_estimate: bool  # whether deletion by size was estimated from the current rate


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fate:
    goes: bool
    drops_local: bool
    why: str


def segment_picture(
    logs: Sequence[SurveyedLog],
    *,
    by: str,
    horizon: str,
    positions: Mapping[Place, Sequence[tuple[str, int]]],
    bytes_per_s: Mapping[Place, float],
) -> Picture:
    """`positions` has the groups with the offset they read next, in each partition."""
    title, ahead_ms = HORIZONS[horizon]
    scale = _Scale.of(logs, by)
    lanes = tuple(
        _lane(
            log,
            scale,
            positions.get((log.topic, log.partition), ()),
            growth=bytes_per_s.get((log.topic, log.partition), 0.0) * ahead_ms / 1000,
        )
        for log in logs
    )
    states = {block.state for lane in lanes for block in lane.blocks}
    return Picture(
        lanes=lanes,
        by=by,
        horizon=horizon,
        horizon_title=title,
        states=tuple(state for state in _LETTERS if state in states),
        goes_count=sum(lane.goes_count for lane in lanes),
        goes_bytes=sum(lane.goes_bytes for lane in lanes),
        has_size_estimate=bool(ahead_ms)
        and any(bytes_per_s.get((log.topic, log.partition)) for log in logs),
    )


def _state(log: SurveyedLog, segment: SegmentInfo) -> str:
    if segment.state == "archived":
        return "remote"
    if segment.state == "active":
        return "active"
    if log.archived_up_to is not None and segment.next_offset <= log.archived_up_to:
        return "archived"
    first_dirty = log.compaction.first_dirty
    is_compacted = "does not include" not in log.compaction.reason
    if is_compacted and segment.next_offset <= first_dirty:
        return "compacted"
    return segment.state


def _fates(log: SurveyedLog, growth: float) -> dict[int, _Fate]:
    """What happens to each segment, by age if nothing is appended and by size at today's rate."""
    now = {decision.base_offset: decision for decision in log.retention.segments}
    found: dict[int, _Fate] = {}
    is_prefix = True
    for later in log.later.segments:
        decision = now.get(later.base_offset, later)
        by_size = _is_pushed_out(decision, growth)
        goes = later.verdict is Verdict.DELETE or (is_prefix and by_size)
        is_prefix = is_prefix and goes
        why = later.reason
        if goes and later.verdict is not Verdict.DELETE:
            why = (
                f"it goes when {size_in_words(decision.after_bytes)} more are written; "
                f"at today's rate {size_in_words(growth)} are written by then"
            )
        drops = later.verdict is Verdict.DROP_LOCAL
        found[later.base_offset] = _Fate(goes=goes, drops_local=drops, why=why)
    return found


def _is_pushed_out(decision: SegmentDecision, growth: float) -> bool:
    return decision.after_bytes is not None and growth > 0 and decision.after_bytes <= growth


def _lane(
    log: SurveyedLog,
    scale: "_Scale",
    positions: Sequence[tuple[str, int]],
    *,
    growth: float,
) -> Lane:
    fates = _fates(log, growth)
    spans = scale.spans(log)
    blocks = [
        _block(log, segment, fates.get(segment.base_offset), *span)
        for segment, span in zip(log.segments, spans, strict=True)
    ]
    blocks = _with_older_joined(blocks)
    shown = sorted(positions, key=lambda position: position[1])[:_GROUPS_SHOWN]
    goes = [block for block in blocks if block.goes]
    return Lane(
        partition=log.partition,
        blocks=tuple(blocks),
        marks=tuple(_marks(log, blocks, shown, fates)),
        start_offset=log.start_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        size_bytes=sum(segment.size_bytes for segment in log.segments),
        goes_count=sum(block.segment_count for block in goes),
        goes_bytes=sum(block.size_bytes for block in goes),
        damage_count=len(log.damages),
        hidden_groups=len(positions) - len(shown),
    )


def _block(
    log: SurveyedLog, segment: SegmentInfo, fate: _Fate | None, x: float, width: float
) -> Block:
    state = _state(log, segment)
    decision = next(
        (d for d in log.retention.segments if d.base_offset == segment.base_offset), None
    )
    return Block(
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        state=state,
        letter=_LETTERS[state],
        first_timestamp_ms=segment.first_timestamp_ms,
        last_timestamp_ms=segment.last_timestamp_ms,
        is_damaged=any(
            damage.first_offset < max(segment.next_offset, segment.base_offset + 1)
            and segment.base_offset < damage.next_offset
            for damage in log.damages
        ),
        goes=fate is not None and fate.goes,
        drops_local=fate is not None and fate.drops_local,
        why="" if fate is None else fate.why,
        expires_ms=None if decision is None else decision.expires_ms,
        after_bytes=None if decision is None else decision.after_bytes,
        x=round(x, 2),
        width=round(width, 2),
    )


def _with_older_joined(blocks: list[Block]) -> list[Block]:
    extra = len(blocks) - BLOCKS_MAX
    if extra <= 0:
        return blocks
    old, rest = blocks[: extra + 1], blocks[extra + 1 :]
    joined = Block(
        base_offset=old[0].base_offset,
        next_offset=old[-1].next_offset,
        size_bytes=sum(block.size_bytes for block in old),
        state="older",
        letter=_LETTERS["older"],
        first_timestamp_ms=old[0].first_timestamp_ms,
        last_timestamp_ms=old[-1].last_timestamp_ms,
        is_damaged=any(block.is_damaged for block in old),
        goes=all(block.goes for block in old),
        drops_local=False,
        why=old[0].why,
        expires_ms=old[-1].expires_ms,
        after_bytes=None,
        x=old[0].x,
        width=old[-1].x + old[-1].width - old[0].x,
        segment_count=len(old),
    )
    return [joined, *rest]


def _marks(
    log: SurveyedLog,
    blocks: Sequence[Block],
    positions: Sequence[tuple[str, int]],
    fates: Mapping[int, _Fate],
) -> list[Mark]:
    found = [
        _mark("start", "Log start", log.start_offset, blocks),
        _mark("end", "High watermark", log.high_watermark, blocks),
    ]
    if log.last_stable_offset < log.high_watermark:
        found.append(_mark("stable", "Last stable offset", log.last_stable_offset, blocks))
    kept = [segment for segment in log.segments if not _goes(fates, segment.base_offset)]
    if kept and kept[0].base_offset > log.start_offset:
        found.append(
            _mark("retention", "Retention deletes up to here", kept[0].base_offset, blocks)
        )
    found += [_mark("group", name, offset, blocks) for name, offset in positions]
    return found


def _goes(fates: Mapping[int, _Fate], base_offset: int) -> bool:
    fate = fates.get(base_offset)
    return fate is not None and fate.goes


def _mark(kind: str, label: str, offset: int, blocks: Sequence[Block]) -> Mark:
    return Mark(kind=kind, label=label, offset=offset, x=round(_x_of(offset, blocks), 2))


def _x_of(offset: int, blocks: Sequence[Block]) -> float:
    """Where an offset is; between the ends of its block in proportion."""
    for block in blocks:
        if offset < block.base_offset:
            return block.x
        if offset < block.next_offset:
            share = (offset - block.base_offset) / (block.next_offset - block.base_offset)
            return block.x + share * block.width
    return blocks[-1].x + blocks[-1].width if blocks else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scale:
    """Turns segments into places. All lanes have the same scale, so that they can be compared."""

    by: str
    largest_bytes: float
    first_ms: int
    last_ms: int

    @classmethod
    def of(cls, logs: Sequence[SurveyedLog], by: str) -> "_Scale":
        times = [
            moment
            for log in logs
            for segment in log.segments
            for moment in (segment.first_timestamp_ms, segment.last_timestamp_ms)
            if moment is not None and moment >= 0
        ]
        sizes = [sum(segment.size_bytes for segment in log.segments) for log in logs]
        return cls(
            by=by,
            largest_bytes=float(max([*sizes, 1])),
            first_ms=min(times, default=0),
            last_ms=max(times, default=1),
        )

    def spans(self, log: SurveyedLog) -> list[tuple[float, float]]:
        """The place and the width of each segment."""
        if self.by == BY_TIME:
            return self._by_time(log)
        return _placed(
            [segment.size_bytes / self.largest_bytes * WIDTH for segment in log.segments], 0.0
        )

    def _by_time(self, log: SurveyedLog) -> list[tuple[float, float]]:
        span_ms = max(self.last_ms - self.first_ms, 1)
        at = next(
            (s.first_timestamp_ms for s in log.segments if s.first_timestamp_ms is not None), None
        )
        reached = self.first_ms if at is None else int(at)
        start = (reached - self.first_ms) / span_ms * WIDTH
        widths: list[float] = []
        for segment in log.segments:
            newest = segment.last_timestamp_ms
            last = reached if newest is None else max(int(newest), reached)
            widths.append((last - reached) / span_ms * WIDTH)
            reached = last
        return _placed(widths, start)


def _placed(widths: Sequence[float], start: float) -> list[tuple[float, float]]:
    """Widths one after the other. Narrow ones can be seen, at the cost of wide ones."""
    shown = [max(width, _BLOCK_WIDTH_MIN) for width in widths]
    room = max(WIDTH - start, _BLOCK_WIDTH_MIN)
    wide = sum(width for width in shown if width > _BLOCK_WIDTH_MIN)
    excess = sum(shown) - max(min(sum(widths), room), 0)
    if wide and excess > 0:
        factor = max(1 - excess / wide, 0.0)
        shown = [
            width if width <= _BLOCK_WIDTH_MIN else max(width * factor, _BLOCK_WIDTH_MIN)
            for width in shown
        ]
    total = sum(shown)
    if start + total > WIDTH:
        start = max(WIDTH - total, 0.0)
    if total > WIDTH:
        shown = [width * WIDTH / total for width in shown]
    places: list[tuple[float, float]] = []
    for width in shown:
        places.append((start, width))
        start += width
    return places
