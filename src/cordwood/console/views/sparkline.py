"""A small line of the last values, as points of an SVG. Pure."""

from collections.abc import Sequence
from typing import Final

from cordwood.value_class import dataclass

WIDTH: Final = 240
HEIGHT: Final = 48
_MARGIN: Final = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Sparkline:
    """`line` and `area` are the points of polylines; empty if there are fewer than two values."""

    line: str
    area: str
    largest: float
    newest: float | None


def sparkline(values: Sequence[float]) -> Sparkline:
    largest = max(values, default=0.0)
    newest = values[-1] if values else None
    if len(values) < 2:
        return Sparkline(line="", area="", largest=largest, newest=newest)
    step = WIDTH / (len(values) - 1)
    height = HEIGHT - 2 * _MARGIN
    points = [
        f"{index * step:.1f},{HEIGHT - _MARGIN - (value / largest if largest else 0) * height:.1f}"
        for index, value in enumerate(values)
    ]
    line = " ".join(points)
    return Sparkline(
        line=line, area=f"0,{HEIGHT} {line} {WIDTH},{HEIGHT}", largest=largest, newest=newest
    )
