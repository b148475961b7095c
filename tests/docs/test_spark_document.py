"""The code in the documents about Spark runs, and so does the pipeline in examples.

Each has its own Spark process: a document starts and stops a session, so it cannot share one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from .test_snippets import (
    FIRST_DOCUMENTS,
    ROOT,
    SPARK_DOCUMENTS,
    SPARK_QUICK_START,
    code_blocks,
    name_of,
    python_blocks,
    run_block,
    run_document,
)

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
def test_the_blocks_of_a_document_run(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    if document == SPARK_QUICK_START:  # it also works where the other quick starts have run
        for earlier in FIRST_DOCUMENTS:
            run_document(earlier)

    run_python_blocks(document, tmp_path)
    for block in code_blocks(document):
        if block.language == "sh":
            run_block(document, block, block.code, {}, timeout_s=600)


def run_python_blocks(document: Path, tmp_path: Path) -> None:
    """Run them as one program, which may stop its Spark session."""
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
