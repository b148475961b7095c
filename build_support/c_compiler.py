"""Find the C compiler for the kernels: the system's, else the `ziglang` package, else none.

``CORDWOOD_CC`` overrides the search: ``zig`` for the wheel, ``none`` for no compiler, or a command.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from dataclasses import dataclass
from pathlib import Path

ZIG_REQUIREMENT = "ziglang>=0.13,<1"

_SYSTEM_COMPILERS = ("cc", "gcc", "clang")
_PROBE = "#include <Python.h>\nint cordwood_probe(void) { return PY_MAJOR_VERSION; }\n"
# Both kinds of compilers stop inlining in the middle of the record parsers, which then take up to
# twice the time: gcc when a module has grown by 40 percent, clang and zig when a function is large.
# The first set counts that the compiler accepts; clang accepts gcc's too, without any effect.
_TUNINGS: tuple[tuple[str, ...], ...] = (
    ("-mllvm", "-inline-threshold=2000"),
    ("--param=inline-unit-growth=300",),
    (),
)
_PROBE_TIMEOUT_S = 300  # the first run of zig builds the C library's stubs


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiler:
    """A command proven to turn C that includes Python.h into a shared object."""

    name: str
    command: tuple[str, ...]
    tuning: tuple[str, ...] = ()

    @property
    def compile_command(self) -> list[str]:
        # We do not use the flags that Python recorded: they were chosen for the compiler that
        # built Python, and another compiler may refuse them.
        flags = ["-O3", "-fPIC", "-fwrapv", "-fno-strict-aliasing", "-DNDEBUG"]
        return [*self.command, *flags, *self.tuning, *shlex.split(os.environ.get("CFLAGS", ""))]

    @property
    def link_command(self) -> list[str]:
        if sys.platform == "darwin":
            flags = ["-bundle", "-undefined", "dynamic_lookup"]
        else:
            flags = ["-shared"]
        return [*self.command, *flags, *shlex.split(os.environ.get("LDFLAGS", ""))]


def find_compiler() -> Compiler | None:
    """The first candidate that passes the probe."""
    for name, command in _candidates():
        for tuning in _TUNINGS:
            compiler = Compiler(name=name, command=command, tuning=tuning)
            if _can_build(compiler):
                return compiler
    return None


def zig_could_help() -> bool:
    """Whether installing the `ziglang` wheel would let this machine compile the kernels."""
    if (os.environ.get("CORDWOOD_CC") or "zig") != "zig":
        return False
    return not is_zig_installed() and find_compiler() is None


def is_zig_installed() -> bool:
    return importlib.util.find_spec("ziglang") is not None


def describe_candidates() -> str:
    """A text that changes with the candidates, to tell whether a build is outdated."""
    return repr(_candidates())


def _candidates() -> list[tuple[str, tuple[str, ...]]]:
    override = os.environ.get("CORDWOOD_CC", "")
    if override == "none":
        return []
    # By default zig optimises for this machine, but a wheel may run on another one.
    zig_command: tuple[str, ...] = (sys.executable, "-m", "ziglang", "cc", "-mcpu=baseline")
    zig = [("zig", zig_command)] if is_zig_installed() else []
    if override == "zig":
        return zig
    names = [override] if override else [os.environ.get("CC", ""), *_SYSTEM_COMPILERS]
    commands = [tuple(shlex.split(name)) for name in names]
    system = [
        (" ".join(command), command) for command in commands if command and shutil.which(command[0])
    ]
    return system if override else system + zig


def _can_build(compiler: Compiler) -> bool:
    with tempfile.TemporaryDirectory(prefix="cordwood-probe-") as directory:
        source, product = Path(directory, "probe.c"), Path(directory, "probe.o")
        library = Path(directory, "probe.so")
        source.write_text(_PROBE)
        include = f"-I{sysconfig.get_paths()['include']}"
        return _succeeds(
            [*compiler.compile_command, include, "-c", str(source), "-o", str(product)]
        ) and _succeeds([*compiler.link_command, str(product), "-o", str(library)])


def _succeeds(command: list[str]) -> bool:
    try:
        finished = subprocess.run(
            command, capture_output=True, check=False, timeout=_PROBE_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return finished.returncode == 0
