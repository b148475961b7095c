"""For which machines and Pythons wheels are built, and which Pythons this machine has."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

VERSIONS = ("3.11", "3.12", "3.13", "3.14")
# Python 3.13 calls its free-threaded build experimental.
FREE_THREADED_VERSIONS = ("3.14",)
GLIBC = (2, 17)

_QUESTION = """
import json, os, sys, sysconfig
include = sysconfig.get_paths()["include"]
settings = os.path.join(include, "pyconfig.h")
print(json.dumps({
    "version": "%d.%d" % sys.version_info[:2],
    "is_release": sys.implementation.name == "cpython" and sys.version_info[3] == "final",
    "is_free_threaded": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "suffix": sysconfig.get_config_var("EXT_SUFFIX"),
    "has_headers": os.path.exists(os.path.join(include, "Python.h")),
    "is_multiarch": os.path.exists(settings) and "-linux-gnu/python" in open(settings).read(),
}))
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A kind of Linux machine. `machine` is its name in Python's and in Zig's words."""

    machine: str
    elf_machine: str

    @property
    def platform_tag(self) -> str:
        return f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{self.machine}"

    @property
    def zig_triple(self) -> str:
        return f"{self.machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"

    @property
    def is_native(self) -> bool:
        return platform.system() == "Linux" and platform.machine() == self.machine


TARGETS = (
    Target(machine="x86_64", elf_machine="EM_X86_64"),
    Target(machine="aarch64", elf_machine="EM_AARCH64"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """A CPython of this machine that has its headers.

    They serve other machines too, because all targets are 64-bit and little-endian. Debian's
    packages are different: their headers include a file for each machine, and have only one.
    """

    path: Path
    version: str
    is_free_threaded: bool
    suffix: str
    is_multiarch: bool = False

    def can_build_for(self, target: Target) -> bool:
        return target.is_native or not self.is_multiarch

    @property
    def name(self) -> str:
        """As in `python3.14t`."""
        return self.version + "t" * self.is_free_threaded

    @property
    def wheel_tag(self) -> str:
        """Interpreter and interface, as in the name of a wheel."""
        python = "cp" + self.version.replace(".", "")
        return f"{python}-{python}{'t' * self.is_free_threaded}"

    def suffix_for(self, target: Target) -> str:
        """The ending of an extension module, on Linux of that machine."""
        return self.suffix.replace(platform.machine(), target.machine)


def wanted_names() -> list[str]:
    return [*VERSIONS, *(f"{version}t" for version in FREE_THREADED_VERSIONS)]


def find_interpreters() -> list[Interpreter]:
    """One for each wanted version that this machine has, in the order of `wanted_names`.

    The first one counts, unless only a later one can build for all targets.
    """
    found: dict[str, Interpreter] = {}
    for path in _candidates():
        interpreter = describe(path)
        if interpreter is None or interpreter.name not in wanted_names():
            continue
        known = found.get(interpreter.name)
        if known is None or (known.is_multiarch and not interpreter.is_multiarch):
            found[interpreter.name] = interpreter
    return [found[name] for name in wanted_names() if name in found]


def _candidates() -> Iterator[Path]:
    """`CORDWOOD_WHEEL_PYTHONS` first, then PATH, then where pyenv and uv keep theirs."""
    for text in os.environ.get("CORDWOOD_WHEEL_PYTHONS", "").split(os.pathsep):
        if text:
            yield Path(text)
    for name in wanted_names():
        on_path = shutil.which(f"python{name}")
        if on_path is not None:
            yield Path(on_path)
    stores = (".pyenv/versions", ".local/share/uv/python")
    for name in wanted_names():
        for store in stores:
            yield from sorted(Path.home().joinpath(store).glob(f"*/bin/python{name}"), reverse=True)


def describe(path: Path) -> Interpreter | None:
    """What is at `path`; None if it does not run or cannot compile extension modules."""
    try:
        answer = subprocess.run(
            [path, "-I", "-c", _QUESTION], capture_output=True, check=True, timeout=60
        ).stdout
        facts = json.loads(answer)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    if not (facts["is_release"] and facts["has_headers"]):
        return None
    return Interpreter(
        path=path,
        version=facts["version"],
        is_free_threaded=facts["is_free_threaded"],
        suffix=facts["suffix"],
        is_multiarch=facts["is_multiarch"],
    )
