"""Frameworks over Kafka clients, each with a small program, in an environment of their own."""

import subprocess
from pathlib import Path

import pytest

import cordwood

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / "build" / "frameworks" / "bin" / "python"
PROGRAMS = Path(__file__).parent / "frameworks"
COUNT = 20

pytestmark = [pytest.mark.interop, pytest.mark.timeout(200)]


def _run(program: str, package: str, tmp_path: Path) -> str:
    if not PYTHON.exists():
        pytest.skip("build/frameworks is missing: script/interop makes it")
    has = subprocess.run(
        [PYTHON, "-c", f"import {package}"], check=False, capture_output=True, text=True
    )
    if has.returncode:
        pytest.skip(f"{package} cannot be imported: {has.stderr.strip().splitlines()[-1]}")
    topics = {"orders": 2, "shouted": 2, "counts": 2}
    with cordwood.Broker(tmp_path / "data", topics=topics) as broker:
        done = subprocess.run(
            [
                *(PYTHON, PROGRAMS / program, broker.bootstrap_servers),
                *(str(COUNT), str(tmp_path / "state")),
            ],
            check=False,
            capture_output=True,
            text=True,
            timeout=180,
            cwd=tmp_path,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def test_faststream_consumes_and_publishes(tmp_path: Path) -> None:
    shown = _run("faststream_app.py", "faststream", tmp_path)

    assert str(sorted(f"ORDER {n}" for n in range(COUNT))) in shown


def test_quix_streams_keeps_state_for_each_key(tmp_path: Path) -> None:
    shown = _run("quix_app.py", "quixstreams", tmp_path)

    assert str(sorted([*range(1, COUNT // 2 + 1)] * 2)) in shown


def test_faust_keeps_a_table_with_its_changelog(tmp_path: Path) -> None:
    shown = _run("faust_app.py", "faust", tmp_path)

    assert str(sorted([*range(1, COUNT // 2 + 1)] * 2)) in shown
