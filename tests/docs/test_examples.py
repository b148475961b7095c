"""Every program in `examples/` runs as a reader would run it, with the expected results.

Each program with Spark starts a JVM. test_spark_document.py tests the pipeline.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
OUTBOX = [("anna", 250), ("anna", 60), ("ben", 90), ("cleo", 15)]
SPARK = [pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]
SPARK.append(pytest.mark.xdist_group("spark"))


def run(*command: str, directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *command],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src")} | environment,
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )


def test_every_example_is_listed_in_their_readme() -> None:
    listed = re.findall(r"\]\(([\w/.]+)\)", (EXAMPLES / "README.md").read_text(encoding="utf-8"))

    programs = {path.name for path in EXAMPLES.glob("*.py")}

    assert {name for name in listed if "/" not in name} == programs
    assert all((EXAMPLES / name).exists() for name in listed)


@pytest.mark.parametrize(
    "name",
    [
        "change_capture",
        "event_sourcing",
        "kafka_directory",
        "kafka_migration",
        "metrics_pipeline",
        "model_replay",
        "outbox",
        "work_queue",
    ],
)
def test_an_example_runs_to_its_end_without_arguments(name: str, tmp_path: Path) -> None:
    program = EXAMPLES / f"{name}.py"

    finished = run(str(program), directory=tmp_path, PYTHONWARNINGS="error")

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout
    assert finished.stderr == ""
    assert list(tmp_path.iterdir()) == []


def test_a_view_is_rebuilt_from_the_events_a_former_run_left(tmp_path: Path) -> None:
    program = EXAMPLES / "event_sourcing.py"

    finished = run(str(program), str(tmp_path / "data"), directory=tmp_path)

    assert "refused: bob holds less than 50" in finished.stdout
    assert "rebuilt from 4 events: {'ada': 70, 'bob': 25}" in finished.stdout
    assert "the same from a snapshot and 1 event" in finished.stdout
    assert (tmp_path / "data" / "accounts-0" / "00000000000000000000.log").exists()


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        (
            "outbox",
            [
                "relayed 2",
                "the relay crashed after it had published",
                "relayed 1 after the crash",
                "in the log: "
                + str([f'{{"customer": "{who}", "cents": {cents}}}' for who, cents in OUTBOX]),
            ],
        ),
        (
            "work_queue",
            [
                "done: {'p0': 12, 'p1': 12, 'p2': 12, 'p3': 11, 'p4': 12}",
                """failed: a width of 0 pixels in b'{"picture": "p3", "width": 0}'""",
                "left: 0",
            ],
        ),
        (
            "change_capture",
            [
                "captured 2",
                "captured 2",
                """view: ['{"id":1,"name":"anna","city":"Oslo"}']""",
                "a new view reads 2 records and has the same rows",
            ],
        ),
        (
            "model_replay",
            ["replayed 48 requests since 2026-03-02", "v1: 88% right", "v2: 100% right"],
        ),
    ],
)
def test_an_example_comes_to_its_results(name: str, printed: list[str], tmp_path: Path) -> None:
    finished = run(str(EXAMPLES / f"{name}.py"), str(tmp_path / "work"), directory=tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert finished.stdout.splitlines() == printed


def test_raw_metrics_expire_and_their_averages_stay(tmp_path: Path) -> None:
    finished = run(str(EXAMPLES / "metrics_pipeline.py"), directory=tmp_path)

    assert "2160 raw values became 360 averages" in finished.stdout
    age = re.search(r"oldest raw value is (\d+) minutes", finished.stdout)
    assert age is not None
    assert 60 <= int(age[1]) <= 72, "a segment goes as a whole, once its newest record is too old"
    assert "the oldest average is 180 minutes old" in finished.stdout


def test_a_copy_of_a_directory_of_kafka_goes_on_at_its_offsets(tmp_path: Path) -> None:
    data = ROOT / "tests" / "golden" / "kafka-4.3" / "data"
    copy = tmp_path / "data"

    finished = run(str(EXAMPLES / "kafka_migration.py"), str(data), str(copy), directory=tmp_path)

    assert finished.returncode == 0, finished.stderr
    assert "groups: billing, shipping" in finished.stdout
    assert "appended to append-time-0 at offset 20" in finished.stdout
    again = run(str(EXAMPLES / "kafka_migration.py"), str(data), str(copy), directory=tmp_path)
    assert again.returncode == 1
    assert re.fullmatch(r"kafka_migration: .*exists.*\n", again.stderr)


def test_tests_with_the_fixture_pass_where_nothing_is_configured(tmp_path: Path) -> None:
    # -c and the empty directory exclude the settings and plugins of this project.
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    tests = str(EXAMPLES / "test_payments.py")

    finished = run(
        *("-m", "pytest", "-c", "pytest.ini", "-p", "no:cacheprovider", "-q", tests),
        directory=tmp_path,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "2 passed" in finished.stdout


def test_a_directory_that_kafka_wrote_is_shown_without_a_change_to_it(tmp_path: Path) -> None:
    data = ROOT / "tests" / "golden" / "kafka-4.3" / "data"
    before = {path: path.stat().st_mtime_ns for path in data.rglob("*")}

    finished = run(str(EXAMPLES / "kafka_directory.py"), str(data), "plain", directory=tmp_path)

    assert re.search(r"^plain-0 +0 to 10 +1 +554$", finished.stdout, re.MULTILINE)
    assert "group billing: codec-gzip-0 at 40, plain-0 at 17, plain-1 at 3" in finished.stdout
    assert "plain: 20 records" in finished.stdout
    assert {path: path.stat().st_mtime_ns for path in data.rglob("*")} == before


def test_a_directory_that_is_not_there_is_named(tmp_path: Path) -> None:
    finished = run(str(EXAMPLES / "kafka_directory.py"), "nowhere", directory=tmp_path)

    assert finished.returncode == 1
    assert re.fullmatch(r"kafka_directory: .*nowhere.*\n", finished.stderr)


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        pytest.param(
            "spark_batch",
            [
                "wrote 1440 payments to 37 segments",
                "all day: {'bakery': 49439, 'florist': 49436, 'garage': 49440}",
                "since 22:00: 120 payments",
                "customer-7: 14831 cents",
            ],
            marks=SPARK,
        ),
        pytest.param(
            "spark_stream",
            [
                "{'bakery': 350, 'florist': 1500}",
                "{'bakery': 400, 'florist': 1500, 'garage': 9900}",
            ],
            marks=SPARK,
        ),
        pytest.param(
            "spark_state",
            [
                "visits that ended: [('ada', 2), ('bob', 1)]",
                "visits that ended: [('ada', 2), ('bob', 1), ('eve', 1)]",
            ],
            marks=SPARK,
        ),
    ],
)
def test_an_example_with_spark_comes_to_its_results(
    name: str, printed: list[str], tmp_path: Path
) -> None:
    program = EXAMPLES / f"{name}.py"

    finished = run(str(program), "data", directory=tmp_path, SPARK_LOCAL_IP="127.0.0.1")

    assert finished.returncode == 0, finished.stderr[-3000:]
    assert finished.stdout.splitlines() == printed
