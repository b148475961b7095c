"""The version has one source: `cordwood.__version__`."""

from __future__ import annotations

import tomllib
from importlib import metadata

import cordwood
from deploy.outside_tool import ROOT


def test_the_metadata_has_the_version_of_the_package() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

    assert "version" not in settings["project"]
    assert settings["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "cordwood.__version__"}
    assert metadata.version("cordwood") == cordwood.__version__


def test_the_changelog_has_a_place_for_the_next_release() -> None:
    assert "\n## [Unreleased]\n" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
