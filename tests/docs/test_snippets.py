"""The code blocks of the documents run, their links are valid, and the embedded demo succeeds.

A block that begins with three backticks and `python` is run; with `no-run` it is only compiled. A
block with `sh run` is run by a shell. The blocks of one document run in order, in one namespace and
in a directory that is empty at first. With `broker`, a broker serves `data` in that directory
during the block, at the address that the block calls localhost:9092.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import pytest

import cordwood

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "examples" / "README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINE_CHARS_MAX = 80
ADDRESS = "localhost:9092"

_FENCE = re.compile(r"^```(\S*)[ \t]*(.*?)[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_SOURCE_FILE = re.compile(r"`((?:[a-z_]+/)+[a-z_]+\.py)`")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A block of code. `line` is its first line, `words` are the words after its language."""

    line: int
    code: str
    language: str
    words: frozenset[str]

    @property
    def is_run(self) -> bool:
        return "no-run" not in self.words


def code_blocks(document: Path) -> list[Block]:
    """The Python blocks, and the shell blocks marked with `run`."""
    text = document.read_text(encoding="utf-8")
    blocks = [
        Block(
            line=text.count("\n", 0, found.start(3)) + 1,
            code=found[3],
            language=found[1],
            words=frozenset(found[2].split()),
        )
        for found in _FENCE.finditer(text)
    ]
    return [
        block
        for block in blocks
        if block.language == "python" or (block.language == "sh" and "run" in block.words)
    ]


def python_blocks(document: Path) -> list[Block]:
    return [block for block in code_blocks(document) if block.language == "python"]


def name_of(document: Path) -> str:
    return document.relative_to(ROOT).as_posix()


# Documents about Spark run in their own processes: see `test_spark_document`.
SPARK_QUICK_START = ROOT / "docs" / "quickstart" / "spark.md"
SPARK_DOCUMENTS = [
    ROOT / "docs" / "spark.md",
    ROOT / "docs" / "tutorials" / "spark.md",
    SPARK_QUICK_START,
]
# A new user goes from one to the next, in the same directory.
FIRST_DOCUMENTS = [
    ROOT / "README.md",
    *(ROOT / "docs" / "quickstart" / f"{name}.md" for name in ("library", "broker")),
]
WITH_CODE = [
    document
    for document in DOCUMENTS
    if document not in (*SPARK_DOCUMENTS, *FIRST_DOCUMENTS) and code_blocks(document)
]


@pytest.mark.parametrize("document", WITH_CODE, ids=name_of)
def test_the_blocks_of_a_document_run(
    document: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    run_document(document)


def test_the_first_documents_run_one_after_the_other_in_the_same_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    for document in FIRST_DOCUMENTS:
        run_document(document)


def run_document(document: Path) -> None:
    """Run all blocks of a document in the current directory."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in code_blocks(document):
        with cordwood.Broker("data") if "broker" in block.words else nullcontext() as broker:
            address = ADDRESS if broker is None else broker.bootstrap_servers
            run_block(document, block, block.code.replace(ADDRESS, address), namespace)


def run_block(
    document: Path,
    block: Block,
    code: str,
    namespace: dict[str, object],
    *,
    timeout_s: float = 120,
) -> None:
    if block.language == "sh":
        commands = Path(sys.executable).parent
        environment = os.environ | {"PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"}
        finished = subprocess.run(
            ["sh", "-euc", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        assert finished.returncode == 0, f"{name_of(document)}:{block.line}: {finished.stderr}"
        return
    # Leading blank lines make line numbers in errors match the document.
    compiled = compile("\n" * (block.line - 1) + code, name_of(document), "exec")
    if block.is_run:
        exec(compiled, namespace)


def test_the_readme_has_an_example_that_runs() -> None:
    assert any(block.is_run for block in python_blocks(ROOT / "README.md"))


def anchors(document: Path) -> set[str]:
    """The link anchors of a document's headings."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    titles = (title.strip().lower() for title in re.findall(r"^#+ (.+)$", text, re.MULTILINE))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_links_within_the_project_lead_somewhere(document: Path) -> None:
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    targets = [target for target in _LINK.findall(text) if "://" not in target]

    def leads_somewhere(target: str) -> bool:
        name, _, anchor = target.partition("#")
        path = document.parent / name if name else document
        return path.exists() and (not anchor or anchor in anchors(path))

    assert [target for target in targets if not leads_somewhere(target)] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_source_files_that_a_document_names_exist(document: Path) -> None:
    named = set(_SOURCE_FILE.findall(document.read_text(encoding="utf-8")))

    missing = [
        name
        for name in named
        if not any((top / name).exists() for top in (ROOT, ROOT / "src/cordwood"))
    ]

    assert sorted(missing) == []


def test_the_embedded_demo_holds_all_its_checks_in_lines_of_a_terminal(tmp_path: Path) -> None:
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


def test_the_figures_in_the_readme_are_those_of_the_measurements() -> None:
    figures = (ROOT / "README.md").read_text(encoding="utf-8").partition("## Figures")[2]
    ratios = re.findall(r"^\|.*\| ([\d.]+) \|$", figures.partition("\n## ")[0], re.MULTILINE)
    page = (ROOT / "docs" / "performance.md").read_text(encoding="utf-8")

    measured = set(re.findall(r"\b(\d+(?:\.\d+)?)x", page))

    assert len(ratios) > 5
    assert [ratio for ratio in ratios if ratio not in measured] == []


def test_the_map_in_the_readme_names_every_room() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    drawn = set(re.findall(r"^  (\w+(?:/|\.py)) ", text, re.MULTILINE))

    rooms = {
        f"{path.name}/" if path.is_dir() else path.name
        for path in (ROOT / "src" / "cordwood").iterdir()
        if (path.suffix == ".py" or path.is_dir()) and not path.name.startswith("__")
    }

    assert drawn == rooms
