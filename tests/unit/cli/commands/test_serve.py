"""`cordwood serve` as a process: what it says, and how it stops."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

import cordwood

DEADLINE_S = 60.0


class Served:
    """A broker process whose reports are JSON lines."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self.process = process
        self.reports: list[dict[str, Any]] = []

    def await_report(self, event: str) -> dict[str, Any]:
        """The report of that event; fails when the process ends or stays silent."""
        assert self.process.stderr is not None
        deadline_s = time.monotonic() + DEADLINE_S
        while time.monotonic() < deadline_s:
            line = self.process.stderr.readline()
            assert line, f"ended with {self.process.wait()} after {self.reports}"
            self.reports.append(json.loads(line))
            if self.reports[-1].get("event") == event:
                return self.reports[-1]
        raise AssertionError(self.reports)

    def end(self, number: int) -> int:
        self.process.send_signal(number)
        return self.process.wait(DEADLINE_S)


@contextlib.contextmanager
def serving(directory: Path, *arguments: str) -> Iterator[Served]:
    command = [sys.executable, "-m", "cordwood", "serve", "--dir", str(directory), "--port", "0"]
    environment = {name: v for name, v in os.environ.items() if not name.startswith("CORDWOOD_")}
    process = subprocess.Popen(
        [*command, "--log-format", "json", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=directory.parent,
    )
    try:
        yield Served(process)
    finally:
        process.kill()
        process.wait()
        assert process.stderr is not None
        process.stderr.close()


def produce(address: str, topic: str, value: bytes) -> None:
    producer = Producer({"bootstrap.servers": address, "linger.ms": 0})
    producer.produce(topic, value)
    assert producer.flush(30) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_what_it_serves_and_stops_in_order_when_asked(tmp_path: Path, number: int) -> None:
    data = tmp_path / "data"
    with serving(data) as served:
        started = served.await_report("started")
        produce(started["address"], "orders", b"paid")

        code = served.end(number)

    assert code == 0
    assert started["data_dirs"] == [str(data)]
    assert started["durability"] == "disk"
    assert started["recovered_partitions"] == 0
    assert (data / ".kafka_cleanshutdown").exists()
    with cordwood.open(data) as store:
        assert [r.value for r in store.topic("orders").partition(0).read(0)] == [b"paid"]


def test_after_a_kill_the_next_start_recovers_what_was_acknowledged(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with serving(data) as served:
        produce(served.await_report("started")["address"], "orders", b"paid")
        served.end(signal.SIGKILL)

    with serving(data) as served:
        started = served.await_report("started")
        assert started["recovered_partitions"] == 1
        assert started["topics"] == 1
        assert served.end(signal.SIGTERM) == 0
    with cordwood.open(data) as store:
        assert [r.value for r in store.topic("orders").partition(0).read(0)] == [b"paid"]


def test_metrics_and_health_are_served_where_they_are_wanted(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--metrics-port", "0") as served:
        address = served.await_report("started")["metrics_address"]

        with urllib.request.urlopen(f"http://{address}/readyz", timeout=30) as answer:
            assert answer.status == 200
        with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
            assert b"kafka_brokers 1.0" in answer.read()
        assert served.end(signal.SIGTERM) == 0


def test_settings_come_from_flags_and_files(tmp_path: Path) -> None:
    config = tmp_path / "server.properties"
    config.write_text("num.partitions=5\nnum.network.threads=3\n")
    with serving(
        tmp_path / "data",
        "--config",
        str(config),
        "--set",
        "log.retention.ms=1h",
        "--durability=os",
    ) as served:
        started = served.await_report("started")
        produce(started["address"], "new", b"x")
        served.end(signal.SIGTERM)

    assert started["durability"] == "os"
    with cordwood.open(tmp_path / "data") as store:
        assert store.topic("new").partition_count == 5
    assert any("num.network.threads" in report["message"] for report in served.reports)


def test_a_directory_in_use_is_told_in_one_line_with_exit_code_1(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data"), serving(tmp_path / "data") as served:
        code = served.process.wait(DEADLINE_S)
        assert served.process.stderr is not None
        said = served.process.stderr.read()

    assert code == 1
    assert said.startswith(f"cordwood: {tmp_path / 'data'} is in use by")
    assert said.count("\n") == 1


def test_a_port_in_use_is_told_in_one_line_with_exit_code_2(tmp_path: Path) -> None:
    with (
        cordwood.Broker() as other,
        serving(tmp_path / "data", "--port", str(other.port)) as served,
    ):
        taken = other.port
        code = served.process.wait(DEADLINE_S)
        assert served.process.stderr is not None
        said = served.process.stderr.read()

    assert code == 2
    assert said.startswith(f"cordwood: port = {taken}: cannot listen on it at 127.0.0.1")
    assert said.count("\n") == 1
    cordwood.open(tmp_path / "data").close()


def test_it_does_not_let_everybody_in_unless_that_is_allowed(tmp_path: Path) -> None:
    with serving(tmp_path / "data", "--host", "0.0.0.0") as served:
        assert served.process.wait(DEADLINE_S) == 2
        assert served.process.stderr is not None
        refused = served.process.stderr.read()
    assert "PLAINTEXT://0.0.0.0:0" in refused
    for way_out in ("--secure", "--host 127.0.0.1", "--insecure"):
        assert way_out in refused
    assert not (tmp_path / "data").exists()

    allowed = ("--host", "0.0.0.0", "--insecure", "--metrics-port", "0")
    with serving(tmp_path / "data", *allowed) as served:
        port = served.await_report("started")["metrics_address"].rpartition(":")[2]
        warned = served.await_report("insecure")
        ready = urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=30).read()
        metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30).read()
        assert served.end(signal.SIGTERM) == 0
    assert warned["level"] == "warning"
    assert b"lets everybody in" in ready
    assert b"cordwood_insecure_listeners 1.0" in metrics


def run(directory: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    environment = {name: v for name, v in os.environ.items() if not name.startswith("CORDWOOD_")}
    return subprocess.run(
        [sys.executable, "-m", "cordwood", *arguments],
        capture_output=True,
        text=True,
        env=environment,
        cwd=directory,
        timeout=DEADLINE_S,
        check=False,
    )


class _Secured(Served):
    """`serve --secure` speaks to people before it reports."""

    def await_report(self, event: str) -> dict[str, Any]:
        assert self.process.stderr is not None
        self.said = ""
        for line in self.process.stderr:
            if line.startswith("{"):
                self.reports.append(json.loads(line))
                if self.reports[-1].get("event") == event:
                    return self.reports[-1]
            else:
                self.said += line
        raise AssertionError(self.said)


def test_secure_sets_up_a_broker_that_only_its_clients_can_use(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "security"
    client = ("--command-config", str(folder / "admin.properties"))
    with serving(tmp_path / "data", "--secure") as plain:
        served = _Secured(plain.process)
        address = served.await_report("started")["address"]
        password = (folder / "admin.password").read_text().strip()
        at = ("--at", address)

        created = run(tmp_path, "topics", "create", "orders", *at, *client)
        anonymous = run(tmp_path, "topics", "list", *at)
        by_options = run(
            tmp_path, "topics", "list", *at, "--ca", str(folder / "ca.pem"),
            "--user", "admin", "--password-file", str(folder / "admin.password"),
        )  # fmt: skip
        librdkafka = dict(
            line.split("=", 1) for line in (folder / "kcat.conf").read_text().splitlines()
        )
        producer = Producer({**librdkafka, "bootstrap.servers": address})
        producer.produce("orders", b"x")
        assert producer.flush(30) == 0
        assert served.end(signal.SIGTERM) == 0

    assert created.returncode == 0, created.stderr
    assert anonymous.returncode == 1
    assert "if the listener uses TLS, pass --tls" in anonymous.stderr
    assert "orders" in by_options.stdout, by_options.stderr
    assert "kafka-topics.sh --bootstrap-server" in served.said
    assert password not in served.said + json.dumps(served.reports)  # it is no terminal

    # Later starts are secure by themselves, and nothing is made again.
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for arguments in ((), ("--secure",)):
        with serving(tmp_path / "data", *arguments) as plain:
            served = _Secured(plain.process)
            address = served.await_report("started")["address"]
            listed = run(tmp_path, "topics", "list", "--at", address, *client)
            assert served.end(signal.SIGTERM) == 0
        assert "orders" in listed.stdout, listed.stderr
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    shown = run(
        tmp_path, "config", "show", "--changed", "--json", "--set", f"log.dirs={folder.parent}"
    )
    rows = [json.loads(line) for line in shown.stdout.splitlines()]
    keystore = next(row for row in rows if row["key"] == "ssl.keystore.location")
    assert keystore["value"] == str(folder / "server.pem")
    assert keystore["source"] == str(folder / "broker.properties")


def test_secure_adds_its_admin_again_if_a_restored_directory_has_no_users(tmp_path: Path) -> None:
    data = tmp_path / "data"
    client = ("--command-config", str(data / "security" / "admin.properties"))
    for _ in range(2):
        with serving(data, "--secure") as plain:
            served = _Secured(plain.process)
            address = served.await_report("started")["address"]
            listed = run(tmp_path, "users", "list", "--at", address, *client)
            assert served.end(signal.SIGTERM) == 0

        assert "admin" in listed.stdout, listed.stderr
        (data / "cordwood-security").unlink()  # snapshots leave it out
    assert "added admin" in served.said


def test_secure_does_not_fight_with_other_settings(tmp_path: Path) -> None:
    listeners = ("--set", "listeners=PLAINTEXT://127.0.0.1:0")
    for arguments, reason in (
        ((*listeners,), "--secure makes a listener of its own"),
        (("--insecure",), "exclude each other"),
    ):
        with serving(tmp_path / "data", "--secure", *arguments) as served:
            assert served.process.wait(DEADLINE_S) == 2
            assert served.process.stderr is not None
            assert reason in served.process.stderr.read()
