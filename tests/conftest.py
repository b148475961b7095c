"""What every test shares: the form of the kernels under test, and how hard Hypothesis tries.

``pytest``          runs on the extension modules where they are built, else on the plain source
``pytest --plain``  runs on the plain source always
"""

from __future__ import annotations

import gc
import hashlib
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import sys
import tomllib
from collections.abc import Generator, Sequence
from itertools import chain
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SOURCE = ROOT / "src"
KERNELS: tuple[str, ...] = tuple(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["cordwood"]["kernels"]
)

# On a shared two-core machine a slow example says nothing about the code, so there is no deadline.
settings.register_profile(
    "default",
    max_examples=50,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile(
    "ci", parent=settings.get_profile("default"), derandomize=True, print_blob=True
)
settings.register_profile(
    "thorough", parent=settings.get_profile("default"), max_examples=2000, stateful_step_count=100
)
settings.load_profile(
    os.environ.get("HYPOTHESIS_PROFILE", "ci" if os.environ.get("CI") else "default")
)


class PlainKernels(importlib.abc.MetaPathFinder):
    """Finds the kernels in their .py files, ahead of the extension modules beside them."""

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in KERNELS:
            return None
        return importlib.util.spec_from_file_location(fullname, kernel_source(fullname))


def kernel_source(module: str) -> Path:
    return SOURCE.joinpath(*module.split(".")).with_suffix(".py")


def compiled_kernels() -> list[str]:
    """The kernels that an import would take from an extension module."""
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    return [
        name
        for name in KERNELS
        if any(kernel_source(name).with_suffix(suffix).exists() for suffix in suffixes)
    ]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--plain", action="store_true", help="run the kernels as plain Python, not compiled"
    )
    parser.addoption(
        "--failures-to", type=Path, help="write the names of failed tests to this file"
    )


def outdated_kernels() -> list[str]:
    """The kernels whose extension module was built from another state of their source."""
    try:
        built_from = json.loads((ROOT / "build" / "kernels.json").read_text())["inputs"]
    except OSError:
        return []
    return [
        name
        for name in compiled_kernels()
        if built_from.get(name) != hashlib.sha256(kernel_source(name).read_bytes()).hexdigest()
    ]


def pytest_configure(config: pytest.Config) -> None:
    from fakes.heard_interrupts import hear_interrupts

    hear_interrupts()
    if not config.getoption("--plain"):
        outdated = outdated_kernels()
        if outdated:
            raise pytest.UsageError(
                f"edited since they were compiled: {', '.join(outdated)}; "
                "run script/bootstrap, or pytest --plain"
            )
        return
    loaded = [name for name in KERNELS if name in sys.modules]
    if loaded:
        raise pytest.UsageError(f"--plain came too late, already imported: {', '.join(loaded)}")
    sys.meta_path.insert(0, PlainKernels())


def pytest_report_header(config: pytest.Config) -> str:
    compiled = [] if config.getoption("--plain") else compiled_kernels()
    plain = [name for name in KERNELS if name not in compiled]
    return f"kernels compiled: {', '.join(compiled) or 'none'}; plain: {', '.join(plain) or 'none'}"


# Where the tests that `-m kernels` selects are. Machines that decide about plain values pass no
# bytes through a kernel: their tests run once.
KERNEL_FOLDERS = ("unit/format", "property", "fuzz")
INTEROP = HERE / "interop"  # each test there is marked so
PURE_MACHINES = frozenset(
    {
        "test_authorizer_model.py",
        "test_consumer_group_machine.py",
        "test_group_machine.py",
        "test_transaction_machine.py",
    }
)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """`-m "kernels and ..."` reads no other folder, `-m "not interop ..."` all but one."""
    if str(config.option.markexpr).startswith("not interop") and collection_path == INTEROP:
        return True
    if not str(config.option.markexpr).startswith("kernels and"):
        return None
    for folder in KERNEL_FOLDERS:
        wanted = HERE / folder
        if collection_path.is_relative_to(wanted) or wanted.is_relative_to(collection_path):
            return None
    return collection_path.is_relative_to(HERE)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    _mark_kernels(items)
    if hasattr(config, "workerinput"):
        from file_scheduling import in_turns

        items[:] = in_turns(items)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """With `--dist loadfile`, files are handed out in an order of ours."""
    if config.getvalue("dist") != "loadfile":
        return None
    from file_scheduling import FileScheduling

    return FileScheduling(config, log)


_has_begun = False


def pytest_runtest_logstart(nodeid: str) -> None:
    """Of several processes, the one with the tests of Spark goes first."""
    global _has_begun
    if not _has_begun and "PYTEST_XDIST_WORKER" in os.environ:
        from file_scheduling import give_way

        give_way(nodeid)
    _has_begun = True


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Write down what failed; where several processes ran the tests, say where the time went."""
    failures_file = config.getoption("--failures-to")
    if failures_file is not None:
        found = chain(terminalreporter.getreports("failed"), terminalreporter.getreports("error"))
        failures_file.write_text(
            "".join(f"{name}\n" for name in dict.fromkeys(each.nodeid for each in found))
        )
    if config.getoption("dist", default="no") == "loadfile":
        from file_scheduling import time_by_folder

        reports = [
            report
            for each in terminalreporter.stats.values()
            for report in each
            if isinstance(report, pytest.TestReport)
        ]
        if reports:
            terminalreporter.section("time by folder, of all processes together")
        for line in time_by_folder(reports):
            terminalreporter.write_line(line)


def _mark_kernels(items: list[pytest.Item]) -> None:
    """Mark whole folders whose results depend on the kernels; `-m kernels` selects them."""
    whole = (f"{HERE}/unit/format/", f"{HERE}/property/")
    for item in items:
        if item.path.name in PURE_MACHINES:
            continue
        if str(item.path).startswith(whole):
            item.add_marker("kernels")
        elif item.get_closest_marker("kernels") is not None:
            folder = item.path.relative_to(HERE)
            if not any(folder.is_relative_to(known) for known in KERNEL_FOLDERS):
                raise pytest.UsageError(f"{folder}: add its folder to KERNEL_FOLDERS")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays: looking for garbage in it takes a sixth of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


def pytest_collection_finish() -> None:
    """The collected tests live as long as the process: the garbage collector need not visit them.

    There are a million objects. Visiting them takes 0.2 s, in each full collection.
    """
    gc.collect()
    gc.freeze()
