"""The commands and options in the documents exist."""

from __future__ import annotations

import ast
import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from cordwood.cli.command_list import app

from .test_snippets import DOCUMENTS, ROOT, name_of

_SHELL = re.compile(r"^```sh[^\n]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^```.*?^```[ \t]*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"`(cordwood [^`]+)`")
_COMMAND = re.compile(r"(?:^|\| |\$ )(cordwood [a-z-].*)")


def shown_commands(document: Path) -> Iterator[str]:
    """The cordwood commands in shell blocks and in code spans of a document."""
    text = document.read_text(encoding="utf-8")
    for block in _SHELL.findall(text):
        for line in block.replace("\\\n", " ").splitlines():
            yield from _COMMAND.findall(line)
    yield from _SPAN.findall(_FENCE.sub("", text))


def complaint(shown: str) -> str | None:
    """What is wrong with a command; None if nothing is."""
    words = shlex.split(shown, comments=True)[1:]
    command: Any = typer.main.get_command(app)
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if hasattr(command, "commands") and words and not words[0].startswith("-"):
        # A word in capitals stands for any command, and dots stand for anything.
        return None if not words[0].islower() else f"no command {words[0]}"
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    known |= {"--help", "-h", "--debug"}
    asked = {word.partition("=")[0] for word in words if re.match(r"--?[a-zA-Z]", word)}
    return f"no option {', '.join(sorted(asked - known))}" if asked - known else None


@pytest.mark.parametrize("document", DOCUMENTS, ids=name_of)
def test_commands_that_a_document_shows_are_there(document: Path) -> None:
    complaints = [f"{shown}: {complaint(shown)}" for shown in shown_commands(document)]

    assert [text for text in complaints if not text.endswith(": None")] == []


def test_extras_that_documents_name_are_there() -> None:
    texts = [document.read_text(encoding="utf-8") for document in DOCUMENTS]
    named = re.findall(r"(?:\bcordwood|'\.)\[([a-z0-9,]+)\]", "\n".join(texts))

    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert {extra for names in named for extra in names.split(",")} == set(
        project["optional-dependencies"]
    )


def test_the_command_needs_no_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    core = {re.split(r"[^\w-]", text)[0] for text in project["dependencies"]}
    files = (ROOT / "src" / "cordwood" / "cli").rglob("*.py")

    imported = {name for file in files for name in imported_packages(file)}

    assert imported - core - sys.stdlib_module_names <= {"cordwood", "pyspark"}
    assert {"rich", "typer"} <= imported


def imported_packages(file: Path) -> Iterator[str]:
    """The top-level packages that a module imports anywhere in its code."""
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name.partition(".")[0] for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module.partition(".")[0]
