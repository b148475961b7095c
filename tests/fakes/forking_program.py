"""Programs that fork, each in a process of its own.

The processes of the tests have threads, of which any may hold a lock at the fork.
"""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[2]
_TIMEOUT_S = 60

_BEGINNING = """
import multiprocessing, os, sys, threading
import cordwood
from cordwood.errors import DirectoryLockedError, ForkedStoreError

def refused(action):
    try:
        action()
    except ForkedStoreError as error:
        assert f"process {os.getppid()}" in str(error), error
        return
    raise AssertionError("not refused")

def in_child(action):
    pid = os.fork()
    if not pid:
        try:
            action()
        except BaseException as error:
            print("child:", repr(error), flush=True)
            os._exit(1)
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
"""


def run_forking(body: str, directory: Path) -> None:
    """Run `body`, which has `in_child`, `refused` and, as `sys.argv[1]`, a directory."""
    program = _BEGINNING + textwrap.dedent(body)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(directory)],
        env={**os.environ, "PYTHONPATH": f"{_ROOT}/src"},
        capture_output=True,
        text=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
