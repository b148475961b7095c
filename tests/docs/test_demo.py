"""The demo runs as a viewer would run it: its checks hold, and no process is left."""

from __future__ import annotations

import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from .test_snippets import LINE_CHARS_MAX, ROOT

pytestmark = pytest.mark.timeout(900)
INTERRUPTED = 130
STATES = ("active", "sealed", "compacted", "archived", "deleted", "kill")
_COMMAND = "   $ "


def start(*arguments: str) -> subprocess.Popen[str]:
    path = os.pathsep.join((str(ROOT), str(ROOT / "src")))
    return subprocess.Popen(
        [sys.executable, "-m", "demo", *arguments],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": path, "PYTHONWARNINGS": "error"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo to its end. What it said is printed: pytest shows that if the test fails."""
    process = start(*arguments)
    output, errors = process.communicate(timeout=800)
    print(f"{output}\n--- errors ---\n{errors}\n--- broker ---\n{broker_log(arguments)}")
    return subprocess.CompletedProcess(process.args, process.returncode, output, errors)


def broker_log(arguments: Sequence[str]) -> str:
    """What the broker of a run logged; the last argument is its directory."""
    log = Path(arguments[-1]) / "broker.log"
    return log.read_text(encoding="utf-8") if log.exists() else "(it was not started)"


def is_served(output: str) -> bool:
    """Whether the broker of the demo still answers."""
    found = re.search(r"listening on 127\.0\.0\.1:(\d+)", output)
    assert found is not None, output
    with socket.socket() as client:
        client.settimeout(5)
        return client.connect_ex(("127.0.0.1", int(found[1]))) == 0


def lines_too_long(output: str, directory: Path) -> list[str]:
    """The output lines that are too long. Commands may be, and paths do not count."""
    lines = output.replace(str(directory), "DIR").splitlines()
    return [line for line in lines if len(line) > LINE_CHARS_MAX and _COMMAND not in line]


def commands_offered(output: str) -> list[list[str]]:
    """The suggested commands that end by themselves, as words."""
    offered = output.partition("What to try next")[2].splitlines()
    commands = [shlex.split(line.removeprefix(_COMMAND)) for line in offered if _COMMAND in line]
    return [words for words in commands if "--at" in words and "console" not in words]


# One test, because otherwise each test process would run the demo again.
def test_a_quick_run_holds_its_checks_draws_its_page_and_leaves_data_to_try(tmp_path: Path) -> None:
    directory = tmp_path / "demo"

    finished = run("--quick", "--no-spark", "--dir", str(directory))

    assert finished.returncode == 0
    assert finished.stderr == ""
    assert "acknowledged events was lost" in finished.stdout.replace("\n   ", "")
    assert "\nNOT " not in finished.stdout
    assert lines_too_long(finished.stdout, directory) == []
    assert not is_served(finished.stdout)

    page = (directory / "demo-report.html").read_text(encoding="utf-8")
    drawn = [state for state in STATES if f'class="{state}"' in page]
    assert page.count("<svg") == 3
    assert drawn == list(STATES)
    assert not re.search(r"<script|<link|<img|src=|href=|@import|url\(", page)

    commands = commands_offered(finished.stdout)
    assert len(commands) >= 5
    for words in commands:
        outcome = subprocess.run(
            [sys.executable, "-m", "cordwood", *words[1:]],
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert outcome.returncode == 0, (words, outcome.stderr)
        assert outcome.stdout


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.xdist_group("spark")
def test_with_spark_stream_and_batch_come_to_what_the_producer_counted(tmp_path: Path) -> None:
    finished = run("--quick", "--dir", str(tmp_path / "demo"))

    assert finished.returncode == 0
    assert "has the same totals" in finished.stdout.replace("\n   ", "")
    assert "a Spark batch query" in finished.stdout


def test_an_interrupted_run_stops_its_broker(tmp_path: Path) -> None:
    process = start("--quick", "--no-spark", "--dir", str(tmp_path / "demo"))
    assert process.stdout is not None
    assert process.stderr is not None
    with process, process.stdout as output, process.stderr as errors:
        said = ""
        while "2  Produce" not in said:
            line = output.readline()
            assert line, errors.read()
            said += line

        process.send_signal(signal.SIGINT)
        said += output.read()
        complaint = errors.read()

        assert process.wait(60) == INTERRUPTED
    assert "all processes are stopped" in complaint
    assert "Traceback" not in complaint
    assert not is_served(said)


def test_a_directory_that_holds_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")

    finished = run("--quick", "--no-spark", "--dir", str(tmp_path))

    assert finished.returncode == 2
    assert "choose another --dir" in finished.stderr
    assert (tmp_path / "letters.txt").read_text() == "dear"
