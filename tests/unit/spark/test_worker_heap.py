"""What Spark's garbage collections between two tasks look at."""

from __future__ import annotations

import subprocess
import sys

IN_A_WORKER = """
import gc, sys
from importlib.machinery import ModuleSpec
from cordwood.spark.worker_heap import settle_heap

sys.modules["__main__"].__spec__ = {spec}
counts, kept = [], []
for _ in range(5):
    kept += [[number] for number in range(1000)]
    settle_heap()
    counts.append(gc.get_freeze_count())
print(*counts)
"""


def freeze_counts(spec: str) -> list[int]:
    found = subprocess.run(
        [sys.executable, "-c", IN_A_WORKER.format(spec=spec)],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(count) for count in found.stdout.split()]


def test_a_worker_forgets_what_its_first_tasks_have_made() -> None:
    counts = freeze_counts('ModuleSpec("pyspark.daemon", None)')

    assert counts[0] >= 1000
    assert counts[1] >= counts[0] + 1000
    assert counts[2] >= counts[1] + 1000


def test_what_later_tasks_make_is_garbage_as_usual() -> None:
    counts = freeze_counts('ModuleSpec("pyspark.daemon", None)')

    assert counts[4] <= counts[3] <= counts[2]


def test_other_processes_are_left_alone() -> None:
    assert freeze_counts("None") == [0] * 5
    assert freeze_counts('ModuleSpec("program", None)') == [0] * 5
