"""What keeps cores awake works for nobody, and ends with whoever started it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from bench.awake import cores_kept_awake, has_cpu_limit

pytestmark = pytest.mark.skipif(
    not hasattr(os, "SCHED_IDLE") or has_cpu_limit(), reason="cores are left alone here"
)

_ROOT = Path(__file__).resolve().parents[3]
_DEADLINE_S = 20.0
_KEEPS_AWAKE = """
import time
from bench.awake import cores_kept_awake
with cores_kept_awake():
    print(flush=True)
    time.sleep(60)
"""


def _children(pid: int) -> list[int]:
    found = Path(f"/proc/{pid}/task/{pid}/children")
    if not found.exists():
        pytest.skip("this system does not list the children of a process")
    return [int(each) for each in found.read_text().split()]


def _wait_until_idle_priority(pids: list[int]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while any(os.sched_getscheduler(pid) != os.SCHED_IDLE for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_every_core_has_a_process_of_the_lowest_priority_until_the_end() -> None:
    before = set(_children(os.getpid()))

    with cores_kept_awake() as is_awake:
        spinners = [pid for pid in _children(os.getpid()) if pid not in before]
        _wait_until_idle_priority(spinners)
        cores = [os.sched_getaffinity(pid) for pid in spinners]

    assert is_awake
    assert sorted(cores, key=min) == [{core} for core in sorted(os.sched_getaffinity(0))]
    assert set(_children(os.getpid())) <= before


def test_they_end_when_whoever_started_them_is_killed() -> None:
    command = [sys.executable, "-c", _KEEPS_AWAKE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=_ROOT) as keeper:
        assert keeper.stdout is not None
        keeper.stdout.readline()
        spinners = _children(keeper.pid)
        assert spinners
        _wait_until_idle_priority(spinners)

        keeper.send_signal(signal.SIGKILL)

    deadline = time.monotonic() + _DEADLINE_S
    while any(_is_running(pid) for pid in spinners):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def _is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False


@pytest.mark.parametrize(
    ("text", "is_limited"), [("max 100000\n", False), ("150000 100000\n", True), (None, False)]
)
def test_a_container_with_a_share_of_its_cores_is_known(
    tmp_path: Path, text: str | None, is_limited: bool
) -> None:
    path = tmp_path / "cpu.max"
    if text is not None:
        path.write_text(text)

    assert has_cpu_limit(path) is is_limited
