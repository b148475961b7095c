"""Every module written for Cython is one that the build compiles."""

from __future__ import annotations

import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_each_module_in_pure_python_mode_is_listed_for_compilation() -> None:
    source = ROOT / "src"
    written = {
        ".".join(path.relative_to(source).with_suffix("").parts)
        for path in source.rglob("*.py")
        if "cython: language_level" in path.read_text(encoding="utf-8")[:200]
    }

    listed = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cordwood"]["kernels"]

    assert written == set(listed)
