"""`cordwood bench`: what it measures, and that it leaves nothing behind."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.cli.bench.load import Limits, Load, _Worker, quantile
from cordwood.cli.bench.place import directory_place
from cordwood.cli.render import Advance
from fakes.command_line import CommandLine, CommandTarget

ROWS = [
    "append one by one",
    "append 655 at a time",
    "read",
    "read as objects",
]


@contextlib.contextmanager
def no_progress(what: str, total: int) -> Iterator[Advance]:
    yield lambda count: None


def load(*, records: int | None = None, seconds: float = 60.0) -> Load:
    return Load(Limits(seconds=seconds, records=records, bytes=1 << 30), 10, no_progress)


class TestTheCommand:
    def test_each_row_is_measured_and_nothing_is_left(
        self, on_target: CommandLine, target: CommandTarget
    ) -> None:
        with target.open_store() as store:
            store.create_topic("orders")

        ran = on_target.ok("bench", "--records", "700", "--threads", "2", "--json")

        assert [row["what"] for row in ran.objects] == ["disk: write + fdatasync", *ROWS]
        assert all(row["records"] > 0 for row in ran.objects)
        written = sum(row["records"] for row in ran.objects[1:3])
        assert min(written, 700) <= ran.objects[3]["records"] <= written
        assert {row["durability"] for row in ran.objects} == {"disk"}
        with target.open_store() as store:
            assert store.topics() == ["orders"]

    def test_a_directory_that_is_no_store_is_as_it_was(
        self, cli: CommandLine, tmp_path: Path
    ) -> None:
        place = tmp_path / "empty"
        place.mkdir()

        ran = cli.ok("bench", "--at", str(place), "--records", "5", "--durability", "os")

        assert "durability os, 1 thread, 1 partition, values of 100 bytes" in ran.err
        assert ran.lines[0].split()[:3] == ["what", "records", "records_per_s"]
        assert list(place.iterdir()) == []

    def test_without_a_target_it_measures_where_it_is(
        self, cli: CommandLine, tmp_path: Path
    ) -> None:
        ran = cli.ok("bench", "--records", "3", "--json")

        assert ran.objects[0]["target"] == "."
        assert list(tmp_path.iterdir()) == []

    def test_an_interrupt_removes_what_was_made(self, tmp_path: Path) -> None:
        command = [sys.executable, "-m", "cordwood", "bench", "--at", str(tmp_path), "-s", "60"]
        running = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        deadline_s = time.monotonic() + 60
        while not list(tmp_path.glob(".cordwood-bench-*/bench-0")):
            assert time.monotonic() < deadline_s
            assert running.poll() is None
            threading.Event().wait(0.01)

        running.send_signal(signal.SIGINT)
        _, err = running.communicate(timeout=60)

        assert running.returncode == 130
        assert "interrupted" in err
        assert list(tmp_path.iterdir()) == []

    @pytest.mark.parametrize("arguments", [["--size", "0"], ["--threads", "0"], ["--seconds", "0"]])
    def test_what_cannot_be_measured_is_refused(
        self, cli: CommandLine, arguments: list[str]
    ) -> None:
        assert cli("bench", *arguments).code == 2


class TestTheLoad:
    @pytest.mark.parametrize("runs", [False, True], ids=["before it runs", "when it runs"])
    def test_an_interrupt_while_a_thread_starts_ends_the_run(
        self, monkeypatch: pytest.MonkeyPatch, runs: bool
    ) -> None:
        threads: list[threading.Thread] = []

        def start(worker: threading.Thread) -> None:
            threads.append(worker)
            if runs:
                threading.Thread.start(worker)
            raise KeyboardInterrupt

        monkeypatch.setattr(_Worker, "start", start)

        with pytest.raises(KeyboardInterrupt):
            load(records=1_000_000_000).run("x", [lambda: 1, lambda: 1])

        assert len(threads) == 1
        if runs:
            threads[0].join(60)
        assert not threads[0].is_alive()

    def test_it_ends_when_enough_records_are_done(self) -> None:
        measured = load(records=10).run("x", [lambda: 1, lambda: 1])

        assert measured.records == 10
        assert measured.p50_ms is not None

    def test_it_ends_when_the_time_is_up(self) -> None:
        waiting = threading.Event()

        measured = load(seconds=0.05).run("x", [lambda: int(not waiting.wait(0.001))])

        assert measured.records > 0
        assert measured.seconds >= 0.05

    def test_it_ends_when_there_is_nothing_left(self) -> None:
        counts = iter([3, 4, 0])

        measured = load().run("x", [lambda: next(counts)], has_latency=False)

        assert (measured.records, measured.p99_ms) == (7, None)

    def test_what_a_worker_fails_with_is_raised(self) -> None:
        def fail() -> int:
            raise cordwood.errors.LogClosedError("bench-0")

        with pytest.raises(cordwood.errors.LogClosedError):
            load().run("x", [fail])

    def test_a_quantile_is_a_time_that_was_seen(self) -> None:
        assert quantile([], 0.5) is None
        assert quantile([0.003, 0.001, 0.002], 0.5) == 2.0
        assert quantile([0.001] * 99 + [1.0], 0.99) == 1000.0


def test_in_a_data_directory_it_lies_where_its_owner_does_not_look(tmp_path: Path) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("orders")
        before = sorted(os.listdir(tmp_path))

        with directory_place(str(tmp_path), partitions=1, config={}):
            found = [path.name for path in (tmp_path / "remote-log-index-cache").iterdir()]

    assert any(name.startswith("cordwood-bench-") for name in found)
    assert set(before) - {".lock"} <= set(os.listdir(tmp_path))
    assert not list(tmp_path.glob("remote-log-index-cache/cordwood-bench-*"))
