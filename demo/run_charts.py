"""The charts of a run, all on one time axis: throughput, progress, segments and their states."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Final

from demo.quantities_shown import shown_bytes
from demo.recording import DELETED, Counts, Recording, SegmentKey, SegmentLife
from demo.svg_canvas import SvgCanvas

_WIDTH: Final = 1000.0
_LEFT: Final = 112.0
_RIGHT: Final = 14.0
_BANDS: Final = 22.0  # the stages, above the plot
_AXIS: Final = 24.0  # the seconds, below the plot
_PLOT: Final = 170.0
_CHAR: Final = 6.3
_WINDOW_S: Final = 1.0  # rates are averages over this time


class TimeAxis:
    """Maps seconds of the run to chart units, and draws stages, seconds and kills."""

    def __init__(self, recording: Recording, end_s: float) -> None:
        self._recording = recording
        self.end_s = max(end_s, 1.0)

    def x(self, at_s: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * min(max(at_s / self.end_s, 0.0), 1.0)

    def draw_behind(self, canvas: SvgCanvas, height: float) -> None:
        """Draw the stages as numbered bands, and the seconds."""
        for number, span in enumerate(self._recording.spans, 1):
            left = self.x(span.start_s)
            right = self.x(self.end_s if span.end_s is None else span.end_s)
            css = "band odd" if number % 2 else "band"
            canvas.rect(left, 0, right - left, _BANDS + height, css, tip=f"{number} {span.title}")
            label = f"{number} {span.title}"
            if len(label) * _CHAR > right - left:
                label = str(number)
            if len(label) * _CHAR <= right - left + 2:
                canvas.text((left + right) / 2, 15, label, "middle stage")
        step = nice_step(self.end_s, 10)
        for index in range(int(self.end_s / step) + 1):
            canvas.text(self.x(index * step), _BANDS + height + 16, f"{index * step:g} s", "middle")

    def draw_before(self, canvas: SvgCanvas, height: float) -> None:
        """Draw kills as red lines."""
        for moment in self._recording.moments:
            if moment.is_kill:
                at = self.x(moment.at_s)
                tip = f"{moment.text} at {moment.at_s:.1f} s"
                canvas.line(at, _BANDS - 4, at, _BANDS + height, "kill", tip=tip)


def nice_step(extent: float, count: int) -> float:
    """1, 2 or 5 times a power of ten, so that there are at most `count` steps."""
    least = extent / count
    power = 10.0 ** math.floor(math.log10(least))
    return next(power * factor for factor in (1, 2, 5, 10) if power * factor >= least)


# --- throughput -------------------------------------------------------------------------------


def rates(counts: Sequence[Counts]) -> list[tuple[float, float]]:
    """Acknowledged events per second, averaged over about one second."""
    found: list[tuple[float, float]] = []
    first = 0
    for index, here in enumerate(counts):
        while first < index and counts[first + 1].at_s <= here.at_s - _WINDOW_S:
            first += 1
        before = counts[first]
        if here.at_s - before.at_s > _WINDOW_S / 2:
            rate = (here.acknowledged - before.acknowledged) / (here.at_s - before.at_s)
            found.append((here.at_s, rate))
    return found


def throughput_chart(recording: Recording, axis: TimeAxis) -> str:
    found = rates(recording.counts)
    canvas = SvgCanvas(_WIDTH, _BANDS + _PLOT + _AXIS, "Acknowledged events per second, over time")
    axis.draw_behind(canvas, _PLOT)
    y = _scale(canvas, max((rate for _, rate in found), default=1.0), "/s")
    if found:
        line = [(axis.x(at_s), y(rate)) for at_s, rate in found]
        floor = _BANDS + _PLOT
        canvas.path([(line[0][0], floor), *line, (line[-1][0], floor)], "area", closed=True)
        canvas.path(line, "acknowledged")
    axis.draw_before(canvas, _PLOT)
    return canvas.render()


def progress_chart(recording: Recording, axis: TimeAxis) -> str:
    """Events acknowledged, read by the group, and counted by Spark."""
    counts = recording.counts
    canvas = SvgCanvas(
        _WIDTH, _BANDS + _PLOT + _AXIS, "Events acknowledged, consumed and streamed, over time"
    )
    axis.draw_behind(canvas, _PLOT)
    y = _scale(canvas, max((here.acknowledged for here in counts), default=1), "")
    lines: tuple[tuple[str, Callable[[Counts], int]], ...] = (
        ("acknowledged", lambda here: here.acknowledged),
        ("consumed", lambda here: here.consumed),
        ("streamed", lambda here: here.streamed),
    )
    for css, value in lines:
        started = [here for here in counts if value(here) > 0]
        canvas.path([(axis.x(here.at_s), y(value(here))) for here in started], css)
    axis.draw_before(canvas, _PLOT)
    return canvas.render()


def _scale(canvas: SvgCanvas, most: float, unit: str) -> Callable[[float], float]:
    """Draw a vertical axis; return the function from a value to its position."""
    most = max(most, 1.0) * 1.05
    step = nice_step(most, 5)

    def y(value: float) -> float:
        return _BANDS + _PLOT * (1 - value / most)

    for index in range(int(most / step) + 1):
        value = index * step
        canvas.line(_LEFT, y(value), _WIDTH - _RIGHT, y(value), "grid")
        canvas.text(_LEFT - 8, y(value) + 4, f"{value:,.0f}{unit}", "end")
    return y


# --- segments ---------------------------------------------------------------------------------


def segments_chart(recording: Recording, axis: TimeAxis) -> str:
    """One row per segment from its first record on, coloured by state."""
    lives = sorted(recording.lives.items())
    row = 9.0 if len(lives) <= 100 else 5.0
    groups = [
        (name, list(members))
        for name, members in groupby(lives, lambda item: (item[0].topic, item[0].partition))
    ]
    height = len(lives) * row + len(groups) * 8.0
    canvas = SvgCanvas(_WIDTH, _BANDS + height + _AXIS, "Segments and their states, over time")
    axis.draw_behind(canvas, height)
    top = _BANDS + 4.0
    for (topic, partition), members in groups:
        canvas.text(_LEFT - 8, top + 9, f"{topic}-{partition}", "end")
        for key, life in members:
            _draw_life(canvas, axis, key, life, top, row - 2)
            top += row
        canvas.line(_LEFT, top + 2, _WIDTH - _RIGHT, top + 2, "grid")
        top += 8.0
    axis.draw_before(canvas, height)
    return canvas.render()


def _draw_life(
    canvas: SvgCanvas,
    axis: TimeAxis,
    key: SegmentKey,
    life: SegmentLife,
    top: float,
    height: float,
) -> None:
    name = f"{key.topic}-{key.partition}/{key.base_offset:020d}.log"
    facts = f"[{key.base_offset:,}, {life.next_offset:,}), {shown_bytes(life.size_bytes)}"
    ends = [*(at_s for at_s, _ in life.states[1:]), axis.end_s]
    for (start_s, state), end_s in zip(life.states, ends, strict=True):
        left, right = axis.x(start_s), axis.x(end_s)
        tip = f"{name}\n{facts}\n{state} from {start_s:.1f} s"
        if state == DELETED:
            canvas.rect(left - 1, top, 2, height, DELETED, tip=tip)
        else:
            canvas.rect(left, top, right - left, height, state, tip=tip)
