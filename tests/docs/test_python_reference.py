"""docs/reference is up to date, has every public name, and each of them says what it does."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import cordwood
import cordwood.aio
import cordwood.spark

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "build_support" / "python_reference.py"


def load_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("python_reference", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    before = list(sys.path)
    spec.loader.exec_module(module)
    sys.path[:] = before
    return module


REFERENCE = load_script()
ENTRIES = [entry for page in REFERENCE.PAGES for entry in page.entries]


def test_the_reference_is_current(capsys: pytest.CaptureFixture[str]) -> None:
    code = REFERENCE.main(["--check"])

    assert code == 0, capsys.readouterr().out


def test_every_public_name_is_in_the_reference() -> None:
    shown = {entry.shown for entry in ENTRIES}
    modules = {"aio", "errors", "__version__"}

    wanted = {f"cordwood.{name}" for name in cordwood.__all__ if name not in modules}
    wanted |= {f"cordwood.aio.{name}" for name in cordwood.aio.__all__}
    wanted |= {f"cordwood.spark.{name}" for name in cordwood.spark.__all__}
    wanted |= {
        f"cordwood.errors.{name}"
        for name, value in vars(cordwood.errors).items()
        if isinstance(value, type) and issubclass(value, cordwood.errors.CordwoodError)
    }

    assert sorted(wanted - shown) == []


@pytest.mark.parametrize("entry", ENTRIES, ids=[entry.shown for entry in ENTRIES])
def test_every_name_and_every_member_says_what_it_does(entry: Any) -> None:
    node = REFERENCE.definition(entry)

    assert REFERENCE.docstring(node)
    if hasattr(node, "bases"):
        assert [m.name for m in REFERENCE.members(node, entry) if not m.text] == []


def test_what_is_left_out_as_internal_exists() -> None:
    classes = {entry.name: REFERENCE.definition(entry) for entry in ENTRIES}

    for owner, member in REFERENCE.INTERNAL:
        assert member in {function.name for function in REFERENCE.functions(classes[owner])}
