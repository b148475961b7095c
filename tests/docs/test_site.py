"""The site of the documents builds without a warning and is self-contained."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

_FETCHED = re.compile(r"""<(?:script|img|iframe|source)[^>]*\ssrc=["']?(?:https?:)?//[^>]*>""")
_LINKED = re.compile(r"""<link[^>]*\shref=["']?(?:https?:)?//[^>]*>""")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    finished = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(directory)],
        cwd=ROOT,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert finished.returncode == 0, finished.stdout + finished.stderr
    assert "WARNING" not in finished.stderr
    return directory


def test_every_document_is_a_page(site: Path) -> None:
    documents = (path.relative_to(ROOT / "docs") for path in (ROOT / "docs").rglob("*.md"))

    missing = [name for name in documents if not (site / name.with_suffix(".html")).exists()]

    assert missing == []


def test_a_page_fetches_nothing_from_elsewhere(site: Path) -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in site.rglob("*.html")}

    foreign = {
        (path.name, found)
        for path, text in pages.items()
        for found in _FETCHED.findall(text) + _LINKED.findall(text)
    }

    assert foreign == set()


def test_the_search_works_when_the_site_is_opened_from_the_disk(site: Path) -> None:
    pages = [site / "index.html", site / "quickstart" / "library.html"]

    first_scripts = [re.findall(r'<script src="([^"]+)"', page.read_text())[0] for page in pages]

    assert first_scripts == ["iframe-worker.js", "../iframe-worker.js"]  # in place of a worker
    assert "window.Worker = " in (site / "iframe-worker.js").read_text()
    index = (site / "search" / "search_index.js").read_text(encoding="utf-8")
    assert index.startswith("var __index = {")  # a page may load a script from the disk, not JSON


def test_the_site_is_built_with_the_locked_packages_of_the_environment() -> None:
    pins = {
        name: set(re.findall(r"^([\w.-]+==\S+)", (ROOT / "requirements" / name).read_text(), re.M))
        for name in ("docs.txt", "dev.txt")
    }

    assert "mkdocs-material" in {pin.partition("==")[0] for pin in pins["docs.txt"]}
    assert pins["docs.txt"] <= pins["dev.txt"]


def test_blocks_of_code_are_shown_as_such(site: Path) -> None:
    pages = (path.read_text(encoding="utf-8") for path in site.rglob("*.html"))

    assert [text for text in pages if "```" in text] == []


def test_every_decision_is_listed() -> None:
    decisions = ROOT / "docs" / "decisions"
    listed = re.findall(r"\]\((0[\w-]+\.md)\)", (decisions / "index.md").read_text())

    assert listed == sorted(path.name for path in decisions.glob("0*.md"))
