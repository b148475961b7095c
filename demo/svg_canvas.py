"""SVG as text: shapes are added in order, and their text is escaped."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape


class SvgCanvas:
    """Coordinates are in units of the picture, which scales with its page."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self._head = (
            f'<svg viewBox="0 0 {width:g} {height:g}" role="img" '
            f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>'
        )
        self._shapes: list[str] = []

    def rect(
        self, x: float, y: float, width: float, height: float, css: str, *, tip: str = ""
    ) -> None:
        box = f'x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
        self._add("rect", box, css, tip)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str, *, tip: str = "") -> None:
        self._add("line", f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"', css, tip)

    def path(
        self, points: Sequence[tuple[float, float]], css: str, *, closed: bool = False
    ) -> None:
        """A line through `points`; if closed, an area."""
        if points:
            steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
            self._add("path", f'd="M{steps}{"Z" if closed else ""}"', css, "")

    def text(self, x: float, y: float, text: str, css: str = "") -> None:
        self._shapes.append(f'<text x="{x:.1f}" y="{y:.1f}" class="{css}">{escape(text)}</text>')

    def render(self) -> str:
        return "\n".join((self._head, *self._shapes, "</svg>"))

    def _add(self, shape: str, geometry: str, css: str, tip: str) -> None:
        inner = f"<title>{escape(tip)}</title>" if tip else ""
        self._shapes.append(f'<{shape} {geometry} class="{css}">{inner}</{shape}>')
