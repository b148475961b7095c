"""``script/cluster``: one command starts a cluster, one shows it, one ends it."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from interop import local_cluster
from interop.kafka_peer import KafkaTools
from interop.local_cluster import ClusterState


def run(*arguments: str | Path) -> int:
    return local_cluster.main([str(each) for each in arguments])


def status(directory: Path, capsys: pytest.CaptureFixture[str]) -> dict[str, object]:
    capsys.readouterr()
    run("status", "--dir", directory, "--json")
    found: dict[str, object] = json.loads(capsys.readouterr().out)
    return found


def test_a_cluster_starts_goes_on_and_ends(
    kafka: KafkaTools, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "cluster"
    sizes = ("--controllers", "1", "--kafka-brokers", "1", "--brokers", "0")
    try:
        assert run("start", "--dir", directory, *sizes) == 0
        first = status(directory, capsys)
        assert [node["name"] for node in first["nodes"]] == ["controller-3000", "kafka-100"]  # type: ignore[attr-defined]
        assert all(node["is_reachable"] for node in first["nodes"])  # type: ignore[attr-defined]
        kafka.topics(str(first["bootstrap_servers"]), "--create", "--topic", "kept")

        state = ClusterState.load(directory)
        assert state is not None
        broker = next(state.of("kafka"))
        os.kill(broker.pid, signal.SIGKILL)
        assert run("start", "--dir", directory) == 0
        again = status(directory, capsys)
        assert again["cluster_id"] == first["cluster_id"]
        assert "kept" in kafka.topics(str(again["bootstrap_servers"]), "--list")

        assert run("start", "--dir", directory, "--controllers", "3") == 1
        assert "has 1 of controller, not 3" in capsys.readouterr().err
    finally:
        assert run("stop", "--dir", directory, "--delete") == 0
    assert not directory.exists()
    assert not broker.is_running


def test_a_directory_with_something_else_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "precious").write_text("")

    assert run("start", "--dir", tmp_path) == 1
    assert "is not empty" in capsys.readouterr().err
    assert run("stop", "--dir", tmp_path) == 1
