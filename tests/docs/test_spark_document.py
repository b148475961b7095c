"""The code in the documents about Spark runs, and so does the pipeline in examples.

Each has its own Spark process: a document starts and stops a session, so it cannot share one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_snippets import ROOT, SPARK_DOCUMENTS, name_of, python_blocks

pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("spark"),
]


def run(arguments: list[str], directory: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=directory,
        env=os.environ | {"PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=800,
        check=False,
    )


@pytest.mark.parametrize("document", SPARK_DOCUMENTS, ids=name_of)
def test_the_python_blocks_of_a_document_run(document: Path, tmp_path: Path) -> None:
    program = tmp_path / "blocks.py"
    lines = [""] * len(document.read_text(encoding="utf-8").splitlines())
    for block in python_blocks(document):
        for number, line in enumerate(block.code.splitlines(), block.line - 1):
            lines[number] = line if block.is_run else f"# {line}"
    program.write_text("\n".join(lines))

    finished = run([str(program)], tmp_path)

    assert finished.returncode == 0, f"{name_of(document)}: {finished.stderr[-3000:]}"


def test_the_pipeline_takes_each_order_once_over_two_runs(tmp_path: Path) -> None:
    program = ROOT / "examples" / "pipelines" / "run.py"

    finished = run([str(program), str(tmp_path / "work")], tmp_path)

    assert finished.returncode == 0, finished.stderr[-3000:]
    assert [
        line for line in finished.stdout.splitlines() if line.startswith(("table", "topic"))
    ] == [
        "table orders: 6 rows, ids 0 to 5",
        "table spending: {'ada': 150.0, 'bob': 210.0, 'eve': 270.0}",
        "topic large-orders: 3 records, ids [3, 4, 5]",
        "table orders: 12 rows, ids 0 to 11",
        "table spending: {'ada': 660.0, 'bob': 780.0, 'eve': 900.0}",
        "topic large-orders: 9 records, ids [3, 4, 5, 6, 7, 8, 9, 10, 11]",
    ]
