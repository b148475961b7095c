import re
from pathlib import Path

import pytest

import cordwood.console
from cordwood.console.pages.rendering import StaticFiles, link

FOLDER = Path(cordwood.console.__file__).parent
TEMPLATES = sorted((FOLDER / "templates").iterdir())


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.name)
def test_a_template_lets_nothing_through_unescaped(path: Path) -> None:
    text = path.read_text()

    assert not re.search(r"\|\s*safe\b|autoescape\s+false|Markup", text)
    assert not re.search(r"\son[a-z]+\s*=|\sstyle\s*=|javascript:|<style", text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", text)
    assert "http://" not in text
    assert "https://" not in text


def test_scripts_put_in_text_and_never_markup() -> None:
    for path in (FOLDER / "static").glob("*.js"):
        text = path.read_text()
        assert not re.search(r"\.innerHTML\s*=[^=]|insertAdjacentHTML|document\.write|eval\(", text)


def test_static_files_are_known_by_name_alone() -> None:
    static = StaticFiles()

    assert static.find("console.css") is not None
    assert static.find("../console.py") is None
    assert static.address("console.js").startswith("/static/console.js?v=")


def test_a_link_keeps_parameters_and_drops_what_is_none() -> None:
    assert link("/topics", {"sort": "-lag", "page": 3}, page=None, filter="a&b") == (
        "/topics?sort=-lag&filter=a%26b"
    )
