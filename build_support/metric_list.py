"""The metrics of a broker, as its own page describes them."""

from __future__ import annotations

import re
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import cordwood  # noqa: E402

_FOREIGN = ("process_", "python_")
_HEAD = re.compile(r"^# HELP (?P<name>\S+) (?P<text>.*)\n# TYPE (?P=name) (?P<kind>\S+)$", re.M)


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricFacts:
    """`name` as in queries: that of a counter ends in ``_total``."""

    name: str
    kind: str
    text: str


def metric_list() -> list[MetricFacts]:
    """Every metric of ours; a broker without topics describes them all, without samples."""
    with cordwood.Broker(config={"metrics.port": 0}) as broker:
        assert broker.metrics_address is not None
        host, port = broker.metrics_address
        with urllib.request.urlopen(f"http://{host}:{port}/metrics", timeout=30) as page:
            content = page.read().decode()
    return [
        MetricFacts(name=found["name"], kind=kind_of(found), text=found["text"])
        for found in _HEAD.finditer(content)
        if not found["name"].startswith(_FOREIGN)
    ]


def kind_of(found: re.Match[str]) -> str:
    """The page's format knows no infos: it calls them gauges."""
    return "info" if found["name"] == "cordwood_build_info" else found["kind"]
