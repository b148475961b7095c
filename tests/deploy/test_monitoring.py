"""The rules and the board use metrics that exist, and promtool accepts them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from deploy.outside_tool import DEPLOY, ROOT, judge

MONITORING = DEPLOY / "monitoring"
RULES = MONITORING / "rules.yaml"
TESTS = MONITORING / "rules-test.yaml"
ALL_RULES = [
    rule
    for group in yaml.safe_load(RULES.read_text(encoding="utf-8"))["groups"]
    for rule in group["rules"]
]
ALERTS = [rule for rule in ALL_RULES if "alert" in rule]
_METRIC = re.compile(r"(?<![:\w])(?:cordwood|kafka)_\w+")


def expressions(board: dict[str, object]) -> Iterator[str]:
    panels = board["panels"]
    assert isinstance(panels, list)
    for panel in panels:
        for target in panel.get("targets", []):
            yield target["expr"]


@pytest.fixture(scope="module")
def series() -> set[str]:
    """The series of a broker; a histogram has three."""
    sys.path.insert(0, str(ROOT / "build_support"))
    from metric_list import metric_list

    names: set[str] = set()
    for metric in metric_list():
        endings = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
        names.update(metric.name + ending for ending in endings)
    return names


def test_promtool_accepts_the_rules() -> None:
    judge("promtool", "check", "rules", RULES)


def test_the_alerts_fire_when_they_should() -> None:
    judge("promtool", "test", "rules", TESTS)


def test_promtool_accepts_the_configuration_of_the_compose_file(tmp_path: Path) -> None:
    (tmp_path / "rules.yaml").write_bytes(RULES.read_bytes())
    configuration = tmp_path / "prometheus.yaml"
    configuration.write_bytes((DEPLOY / "compose" / "prometheus.yaml").read_bytes())

    judge("promtool", "check", "config", configuration)


def test_every_alert_has_a_test() -> None:
    tested = {
        case["alertname"]
        for test in yaml.safe_load(TESTS.read_text(encoding="utf-8"))["tests"]
        for case in test.get("alert_rule_test", [])
        if case["exp_alerts"]
    }

    assert {rule["alert"] for rule in ALERTS} - tested == set()


def test_every_alert_says_how_urgent_it_is_and_what_to_do() -> None:
    for rule in ALERTS:
        assert rule["labels"]["severity"] in {"page", "ticket", "info"}, rule["alert"]
        assert rule["annotations"].keys() == {"summary", "action"}, rule["alert"]


def test_the_rules_use_metrics_that_exist(series: set[str]) -> None:
    used = {name for rule in ALL_RULES for name in _METRIC.findall(rule["expr"])}

    assert used - series == set()


def test_the_board_shows_every_metric_and_is_current(series: set[str]) -> None:
    finished = subprocess.run(
        [sys.executable, str(ROOT / "build_support" / "grafana_board.py"), "--check"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    board = json.loads((MONITORING / "grafana-board.json").read_text(encoding="utf-8"))
    used = {name for query in expressions(board) for name in _METRIC.findall(query)}
    assert used - series == set()
    assert {re.sub(r"_(bucket|sum|count)$", "", name) for name in series} <= {
        re.sub(r"_(bucket|sum|count)$", "", name) for name in used
    }


def test_promtool_accepts_the_queries_of_the_board(tmp_path: Path) -> None:
    board = json.loads((MONITORING / "grafana-board.json").read_text(encoding="utf-8"))
    queries = [query.replace("$__rate_interval", "5m") for query in expressions(board)]
    rules = [{"record": f"panel:{n}", "expr": query} for n, query in enumerate(queries)]
    file = tmp_path / "rules.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": rules}]}))

    judge("promtool", "check", "rules", file)


def test_panels_do_not_overlap() -> None:
    board = json.loads((MONITORING / "grafana-board.json").read_text(encoding="utf-8"))
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        cells = {
            (place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
