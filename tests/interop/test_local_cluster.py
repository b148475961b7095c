"""``script/cluster``: one command starts a cluster, one shows it, one ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from interop.kafka_peer import KafkaTools
from interop.local_cluster import ClusterState

TESTS = Path(__file__).resolve().parent.parent


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """What ``script/cluster`` runs."""
    return subprocess.run(
        [sys.executable, "-m", "interop.local_cluster", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        check=False,
    )


def started(*arguments: str | Path) -> dict[str, Any]:
    ended = run("start", *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_cluster_starts_goes_on_and_ends(kafka: KafkaTools, tmp_path: Path) -> None:
    directory = tmp_path / "cluster"
    sizes = ("--controllers", "1", "--kafka-brokers", "1", "--brokers", "0")
    try:
        first = started("--dir", directory, *sizes)
        assert [node["name"] for node in first["nodes"]] == ["controller-3000", "kafka-100"]
        assert all(node["is_reachable"] for node in first["nodes"])
        kafka.topics(first["bootstrap_servers"], "--create", "--topic", "kept")

        state = ClusterState.load(directory)
        assert state is not None
        broker = next(state.of("kafka"))
        os.kill(broker.pid, signal.SIGKILL)
        again = started("--dir", directory)
        assert again["cluster_id"] == first["cluster_id"]
        assert "kept" in kafka.topics(again["bootstrap_servers"], "--list")
        assert run("status", "--dir", directory).returncode == 0

        refused = run("start", "--dir", directory, "--controllers", "3")
        assert refused.returncode == 1
        assert "has 1 of controller, not 3" in refused.stderr
    finally:
        ended = run("stop", "--dir", directory, "--delete")
    assert ended.returncode == 0, ended.stderr
    assert not directory.exists()
    assert not broker.is_running


def test_a_directory_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")

    refused = run("start", "--dir", tmp_path)

    assert refused.returncode == 1
    assert "is not empty" in refused.stderr
    assert run("stop", "--dir", tmp_path).returncode == 1
