"""``script/cluster``: one command starts a cluster, one shows it, one ends it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from interop.kafka_peer import KafkaTools
from interop.local_cluster import planned
from interop.local_nodes import ClusterState

TESTS = Path(__file__).resolve().parent.parent


def run(*arguments: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """What ``script/cluster`` runs."""
    return subprocess.run(
        [sys.executable, "-m", "interop.local_cluster", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        env={**os.environ, "PYTHONPATH": str(TESTS), **environment},
        check=False,
    )


def started(*arguments: str | Path) -> dict[str, Any]:
    ended = run("start", *arguments, "--json")
    assert ended.returncode == 0, ended.stderr
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def test_a_cluster_starts_goes_on_and_ends(kafka: KafkaTools, tmp_path: Path) -> None:
    directory = tmp_path / "my cluster"
    sizes = ("--controllers", "1", "--kafka-brokers", "1", "--brokers", "1")
    try:
        first = started("--dir", directory, *sizes)
        names = [node["name"] for node in first["nodes"]]
        assert names == ["controller-3000", "kafka-100", "broker-1"]
        assert all(node["is_reachable"] for node in first["nodes"])
        wide = ("--replication-factor", "2")  # at once: both brokers may have replicas
        kafka.topics(first["bootstrap_servers"], "--create", "--topic", "kept", *wide)
        assert started("--dir", directory) == first  # nothing to do

        state = ClusterState.load(directory)
        assert state is not None
        broker = next(state.of("broker"))
        os.kill(broker.pid, signal.SIGKILL)
        deadline = time.monotonic() + 10
        while not broker.is_port_free:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        with socket.create_server(("127.0.0.1", broker.port)):
            again = started("--dir", directory)
        assert again["cluster_id"] == first["cluster_id"]
        assert again["nodes"][:2] == first["nodes"][:2]  # they ran all the time
        assert again["nodes"][2]["address"] != first["nodes"][2]["address"]
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


def test_a_start_that_was_killed_goes_on(kafka: KafkaTools, tmp_path: Path) -> None:
    """The controller was launched, and nobody waited for it."""
    directory = tmp_path / "cluster"
    sizes = ("--controllers", "1", "--brokers", "1")
    try:
        with subprocess.Popen(
            [sys.executable, "-m", "interop.local_cluster", "start", "--dir", directory, *sizes],
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            stderr=subprocess.DEVNULL,
        ) as starting:
            deadline = time.monotonic() + 60
            while not (directory / "controller-3000" / "server.pid").exists():
                assert time.monotonic() < deadline
                time.sleep(0.02)
            starting.kill()

        found = started("--dir", directory)

        assert all(node["is_running"] for node in found["nodes"])
    finally:
        ended = run("stop", "--dir", directory, "--delete")
    assert ended.returncode == 0, ended.stderr


def test_a_controller_whose_port_is_taken_is_named(kafka: KafkaTools, tmp_path: Path) -> None:
    state = planned(tmp_path, controllers=1, kafka=0, brokers=1)
    state.save()
    controller = next(state.of("controller"))

    with socket.create_server(("127.0.0.1", controller.port)):
        refused = run("start", "--dir", tmp_path)

    assert refused.returncode == 1
    assert f"port {controller.port} of controller-3000 is used" in refused.stderr


def test_without_java_nothing_is_written(tmp_path: Path) -> None:
    refused = run("start", "--dir", tmp_path / "new", JAVA_HOME="/nowhere")

    assert refused.returncode == 1
    assert "script/cluster: " in refused.stderr
    assert not (tmp_path / "new").exists()


def test_a_state_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text("{")

    refused = run("status", "--dir", tmp_path)

    assert refused.returncode == 1
    assert "cannot be read" in refused.stderr


def test_a_directory_with_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("")

    refused = run("start", "--dir", tmp_path)

    assert refused.returncode == 1
    assert "is not empty" in refused.stderr
    assert run("stop", "--dir", tmp_path).returncode == 1
