"""The report: one self-contained HTML file, without scripts."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from html import escape
from itertools import groupby
from pathlib import Path
from typing import Final

import cordwood
from demo.next_steps import NextStep
from demo.recording import ACTIVE, ARCHIVED, COMPACTED, DELETED, SEALED, Recording
from demo.run_charts import TimeAxis, progress_chart, rates, segments_chart, throughput_chart

_STYLE: Final = """
:root { color-scheme: light; }
body { margin: 0; background: #f6f7f9; color: #1d2530; font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; margin: 0; }
h2 { font-size: 17px; margin: 0 0 2px; }
p { margin: 2px 0 12px; color: #566070; }
section { background: #fff; border: 1px solid #e2e6eb; border-radius: 10px; padding: 18px 20px;
  margin-top: 18px; }
.numbers { display: grid; grid-template-columns: repeat(auto-fill, minmax(215px, 1fr)); gap: 10px;
  margin-top: 18px; }
.numbers div { background: #fff; border: 1px solid #e2e6eb; border-radius: 10px;
  padding: 10px 14px; }
.numbers b { display: block; font-size: 19px; }
.numbers span, .key { color: #566070; font-size: 13px; }
svg { width: 100%; height: auto; display: block; }
svg text { font: 11px system-ui, sans-serif; fill: #566070; }
svg .middle { text-anchor: middle; }
svg .end { text-anchor: end; }
svg .stage { fill: #1d2530; }
.band { fill: #fff; }
.band.odd { fill: #f1f4f8; }
.grid { stroke: #e2e6eb; stroke-width: 1; }
.area { fill: #0072b2; opacity: .15; }
path { fill: none; stroke-width: 2; stroke-linejoin: round; }
path.area { stroke: none; fill: #0072b2; }
path.acknowledged { stroke: #0072b2; }
path.consumed { stroke: #009e73; stroke-dasharray: 6 3; }
path.streamed { stroke: #d55e00; }
rect.active { fill: #e69f00; }
rect.sealed { fill: #7db8e0; }
rect.compacted { fill: #009e73; }
rect.archived { fill: #b9a3d6; }
rect.deleted { fill: #4a525e; }
line.kill { stroke: #c8102e; stroke-width: 2; }
.key i { display: inline-block; width: 14px; height: 10px; border-radius: 2px;
  margin: 0 5px 0 14px; }
.key i:first-child { margin-left: 0; }
ul { list-style: none; margin: 4px 0 10px; padding: 0; }
li::before { content: "ok"; color: #00714f; font-weight: 700; display: inline-block; width: 38px; }
li.broken::before { content: "NOT"; color: #c8102e; }
h3 { font-size: 14px; margin: 10px 0 0; }
code { font: 13px ui-monospace, monospace; background: #f1f4f8; border-radius: 5px;
  padding: 2px 6px; }
dt { margin-top: 8px; } dd { margin: 0; color: #566070; }
"""
_STATE_COLOURS: Final = (
    (ACTIVE, "#e69f00", "active: receives writes"),
    (SEALED, "#7db8e0", "sealed: never changes"),
    (COMPACTED, "#009e73", "compacted: only the newest record of each key"),
    (ARCHIVED, "#b9a3d6", "archived: local copy deleted"),
    (DELETED, "#4a525e", "deleted: merged into another segment"),
    ("kill", "#c8102e", "SIGKILL"),
)
_LINE_COLOURS: Final[tuple[tuple[str, str, str], ...]] = (
    ("acknowledged", "#0072b2", "acknowledged to the producer"),
    ("consumed", "#009e73", "read by the consumer group, which stops after its stage"),
    ("streamed", "#d55e00", "counted by the Spark stream"),
    ("kill", "#c8102e", "SIGKILL"),
)


def write_report(recording: Recording, path: Path, steps: Sequence[NextStep]) -> None:
    path.write_text(render_report(recording, steps), encoding="utf-8")


def render_report(recording: Recording, steps: Sequence[NextStep]) -> str:
    ends_s = [here.at_s for here in recording.counts]
    axis = TimeAxis(recording, max(ends_s, default=1.0))
    held = sum(check.held for check in recording.checks)
    parts = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>Cordwood demo</title><style>{_STYLE}</style></head><body><main>",
        f"<h1>Cordwood: {held} of {len(recording.checks)} promises held</h1>",
        f"<p>{escape(_circumstances(recording))}</p>",
        _numbers(recording),
        _section(
            "Throughput",
            "Acknowledged events per second. Stages have the same numbers as in the terminal.",
            throughput_chart(recording, axis),
            _key([c for c in _LINE_COLOURS if c[0] in {"acknowledged", "kill"}]),
        ),
        _section(
            "Progress",
            "Events since the start. Where lines meet, there is no lag.",
            progress_chart(recording, axis),
            _key([c for c in _LINE_COLOURS if c[0] != "streamed" or recording.streamed]),
        ),
        _section(
            "Segments and their states",
            "One row per segment file. Point at one to see its name, offsets and size.",
            segments_chart(recording, axis),
            _key(_STATE_COLOURS),
        ),
        _checks(recording),
        _steps(steps),
        "</main></body></html>",
    )
    return "\n".join(parts)


def _circumstances(recording: Recording) -> str:
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    cores = os.cpu_count() or 1
    python = platform.python_version()
    return (
        f"Version {cordwood.__version__}, {now}, Python {python} on {platform.system()}, "
        f"{cores} cores for the broker"
        f"{', its clients and Spark' if recording.streamed else ' and its clients'}."
    )


def _numbers(recording: Recording) -> str:
    peak = max((rate for _, rate in rates(recording.counts)), default=0.0)
    figures = [
        ("events produced", f"{recording.acknowledged:,}"),
        ("peak events per second", f"{peak:,.0f}"),
        *recording.figures,
    ]
    tiles = (
        f"<div><span>{escape(name)}</span><b>{escape(text)}</b></div>" for name, text in figures
    )
    return f'<div class="numbers">{"".join(tiles)}</div>'


def _section(title: str, what: str, *content: str) -> str:
    inner = "\n".join(content)
    return f"<section><h2>{escape(title)}</h2><p>{escape(what)}</p>{inner}</section>"


def _key(colours: Sequence[tuple[str, str, str]]) -> str:
    entries = (f'<i style="background:{colour}"></i>{escape(text)}' for _, colour, text in colours)
    return f'<div class="key">{"".join(entries)}</div>'


def _checks(recording: Recording) -> str:
    """The checks, by stage, in order."""
    listed = []
    for stage, checks in groupby(recording.checks, lambda check: check.stage):
        items = (
            f'<li class="{"held" if check.held else "broken"}">{escape(check.rule)}</li>'
            for check in checks
        )
        listed.append(f"<h3>{escape(stage)}</h3><ul>{''.join(items)}</ul>")
    return _section("Checks", "Each was verified during the run.", *listed)


def _steps(steps: Sequence[NextStep]) -> str:
    listed = (
        f"<dt><code>{escape(step.command)}</code></dt><dd>{escape(step.shows)}</dd>"
        for step in steps
    )
    return _section(
        "What to try next",
        "These commands use the files of the run. Start them in the same directory as the demo.",
        f"<dl>{''.join(listed)}</dl>",
    )
