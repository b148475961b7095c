"""What the pages for newcomers quote is what the program says, and the drawings can be read."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
DRAWINGS = sorted((DOCS / "images").glob("*.svg"))
SVG = "{http://www.w3.org/2000/svg}"

# A capital word, a part in brackets or an ellipsis stands for a value.
_VALUE = re.compile(r"'?\b[A-Z]+\b(?:-[A-Z]+\b)?'?|\([^)]*\)|\[[^)\]]*\)|\.\.\.")
_JOINT = re.compile(r"""["']\s*\n\s*f?["']""")


def quoted_messages() -> list[str]:
    """The texts in code that stand in the first column of the tables."""
    page = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)
    return [row for row in rows if " " in row]


def source_text() -> str:
    """All messages of the package, with texts that go over several lines in one piece."""
    paths = sorted((ROOT / "src" / "cordwood").rglob("*.py"))
    return _JOINT.sub("", "\n".join(path.read_text(encoding="utf-8") for path in paths))


def test_every_message_in_troubleshooting_is_one_that_the_program_says() -> None:
    source = source_text()
    messages = quoted_messages()

    assert len(messages) > 25
    fixed = {message: max(_VALUE.split(message), key=len).strip(" :;,") for message in messages}
    assert [m for m, words in fixed.items() if len(words) > 6 and words not in source] == []


def test_the_versions_in_tested_with_are_those_of_the_lock_file() -> None:
    page = (DOCS / "tested-with.md").read_text(encoding="utf-8")
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    pins = {name.lower(): version for name, version in re.findall(r"^([\w-]+)==(\S+)", lock, re.M)}
    rows = {
        "PySpark": "pyspark",
        "pyarrow": "pyarrow",
        "pandas": "pandas",
        "Delta Lake (`deltalake`)": "deltalake",
        "Iceberg (`pyiceberg`)": "pyiceberg",
        "S3, by the simulator `moto`": "moto",
        "pytest, with the fixture `cordwood_broker`": "pytest",
    }

    for shown, package in rows.items():
        found = re.search(rf"^\| {re.escape(shown)} \| ([\d.]+)", page, re.MULTILINE)
        assert found is not None, shown
        assert found[1] == pins[package], shown


@pytest.mark.parametrize("drawing", DRAWINGS, ids=[path.stem for path in DRAWINGS])
def test_a_drawing_has_words_for_screen_readers_and_colours_for_the_dark(drawing: Path) -> None:
    text = drawing.read_text(encoding="utf-8")

    root = ET.fromstring(text)

    assert root.get("role") == "img"
    assert (root.findtext(f"{SVG}title") or "").strip()
    assert len(root.findtext(f"{SVG}desc") or "") > 40
    assert "prefers-color-scheme: dark" in text
    assert "http://" not in text.replace("http://www.w3.org/", "")


@pytest.mark.parametrize("drawing", DRAWINGS, ids=[path.stem for path in DRAWINGS])
def test_the_text_of_a_drawing_is_large_enough_and_inside_of_it(drawing: Path) -> None:
    root = ET.fromstring(drawing.read_text(encoding="utf-8"))
    width, height = float(root.get("width", 0)), float(root.get("height", 0))

    for text in root.iter(f"{SVG}text"):
        x, y = float(text.get("x", -1)), float(text.get("y", -1))
        assert 0 < x < width
        assert 0 < y < height
    sizes = re.findall(r"font(?:-size)?: (\d+)px", drawing.read_text(encoding="utf-8"))
    assert min(map(int, sizes)) >= 13


def test_every_drawing_is_shown_on_a_page() -> None:
    pages = "".join(path.read_text(encoding="utf-8") for path in DOCS.rglob("*.md"))

    assert DRAWINGS
    assert [path.name for path in DRAWINGS if f"images/{path.name})" not in pages] == []
