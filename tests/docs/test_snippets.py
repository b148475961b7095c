"""The documents do what they say: their Python blocks run, and the demonstration holds.

A block opened by three backticks and `python` is run; with `no-run` behind it, it is only
compiled. The blocks of one document run in order, in one namespace and in an empty directory.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINE_CHARS_MAX = 80

_FENCE = re.compile(r"^```(\S*)[ \t]*(.*?)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SOURCE_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A Python block; `line` is that of its first line of code."""

    line: int
    code: str
    is_run: bool


def python_blocks(document: Path) -> list[Block]:
    text = document.read_text(encoding="utf-8")
    return [
        Block(
            line=text.count("\n", 0, found.start(3)) + 1,
            code=found[3],
            is_run="no-run" not in found[2].split(),
        )
        for found in _FENCE.finditer(text)
        if found[1] == "python"
    ]


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


# The one about Spark runs in a process of its own: see `test_spark_document`.
SPARK_DOCUMENT = ROOT / "docs" / "spark.md"
WITH_CODE = [
    document for document in DOCUMENTS if document != SPARK_DOCUMENT and python_blocks(document)
]


@pytest.mark.parametrize("document", WITH_CODE, ids=name_of)
def test_the_python_blocks_of_a_document_run(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, object] = {"__name__": "__main__"}

    for block in python_blocks(document):
        # Blank lines in front give an error the line number it has in the document.
        code = compile("\n" * (block.line - 1) + block.code, name_of(document), "exec")
        if block.is_run:
            exec(code, namespace)


def test_the_readme_has_an_example_that_runs() -> None:
    assert any(block.is_run for block in python_blocks(ROOT / "README.md"))


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_within_the_project_lead_somewhere(document: Path) -> None:
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    targets = [target for target in _LINK.findall(text) if "://" not in target]

    broken = [
        target
        for target in targets
        if not (document.parent / target.partition("#")[0]).exists() and target[0] != "#"
    ]

    assert broken == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_source_files_that_a_document_names_exist(document: Path) -> None:
    named = set(_SOURCE_FILE.findall(document.read_text(encoding="utf-8")))

    missing = [
        name
        for name in named
        if not any((top / name).exists() for top in (ROOT, ROOT / "src/varve"))
    ]

    assert sorted(missing) == []


def test_the_demonstration_holds_all_its_checks_in_lines_of_a_terminal(tmp_path: Path) -> None:
    environment = os.environ | {"PYTHONPATH": str(ROOT / "src"), "PYTHONWARNINGS": "error"}

    finished = subprocess.run(
        [sys.executable, str(ROOT / "demo" / "embedded_demo.py")],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "nothing acknowledged was lost" in finished.stdout
    assert [line for line in finished.stdout.splitlines() if len(line) > LINE_CHARS_MAX] == []
    assert finished.stderr == ""
