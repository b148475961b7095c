"""What a wheel and a source distribution of Cordwood must contain, and what they must not.

Every check returns complaints, one sentence each; no complaint means that the file is in order.
"""

from __future__ import annotations

import io
import re
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Sequence
from email.message import Message
from email.parser import BytesParser
from pathlib import Path, PurePosixPath

from wheel_targets import GLIBC, Target

_REQUIRED = ("cordwood/__init__.py", "cordwood/py.typed", "cordwood/cli/app.py")
# Spark finds data sources in packages whose names begin with pyspark_.
_TOP_LEVEL = re.compile(r"cordwood|pyspark_cordwood|cordwood-[^/]+\.dist-info")
_GLIBC_SYMBOL = re.compile(rb"\bGLIBC_(\d+)\.(\d+)(?:\.\d+)?\0")
# setuptools writes these into a source distribution.
_GENERATED = re.compile(r"^(PKG-INFO|setup\.cfg|src/cordwood\.egg-info/.*)$")
# Files about the repository rather than the project.
_UNSHIPPED = re.compile(r"^\.git(ignore|attributes)$|^\.ci/")


def wheel_complaints(
    wheel: Path, *, version: str, kernels: Sequence[str], suffix: str, target: Target, root: Path
) -> list[str]:
    """`suffix` is the ending of extension modules, `root` the directory it was built in."""
    with zipfile.ZipFile(wheel) as archive:
        contents = {name: archive.read(name) for name in archive.namelist()}
    return [
        *name_complaints(contents, kernels=kernels, suffix=suffix),
        *metadata_complaints(contents, version=version),
        *path_complaints(contents, root=root),
        *machine_complaints(contents, target=target),
    ]


def name_complaints(names: Iterable[str], *, kernels: Sequence[str], suffix: str) -> Iterator[str]:
    names = set(names)
    for required in _REQUIRED:
        if required not in names:
            yield f"{required} is missing"
    modules = {kernel.replace(".", "/") for kernel in kernels}
    for module in sorted(modules):
        for name in (module + suffix, module + ".py", module + ".pyi"):
            if name not in names:
                yield f"{name} is missing"
    expected = {module + suffix for module in modules}
    for name in sorted(names):
        parts = PurePosixPath(name).parts
        if not _TOP_LEVEL.fullmatch(parts[0]):
            yield f"{name} is outside of the package"
        if {"tests", "test", "__pycache__"} & set(parts) or name.endswith((".c", ".pyc")):
            yield f"{name} does not belong in a wheel"
        if name.endswith(".so") and name not in expected:
            yield f"{name} is an extension module that is not a kernel of this wheel"


def metadata_complaints(contents: dict[str, bytes], *, version: str) -> Iterator[str]:
    information = f"cordwood-{version}.dist-info"
    if f"{information}/METADATA" not in contents:
        yield f"{information}/METADATA is missing"
        return
    metadata: Message = BytesParser().parsebytes(contents[f"{information}/METADATA"])
    for key, expected in {"Version": version, "License-Expression": "Apache-2.0"}.items():
        if metadata[key] != expected:
            yield f"{key} is {metadata[key]}, not {expected}"
    licences = metadata.get_all("License-File") or []
    if not licences:
        yield "METADATA names no licence file"
    for name in licences:
        if not contents.get(f"{information}/licenses/{name}"):
            yield f"the licence file {name} is missing or empty"
    if b"cordwood = cordwood.cli.app:main" not in contents[f"{information}/entry_points.txt"]:
        yield "the command `cordwood` is missing"


def path_complaints(contents: dict[str, bytes], *, root: Path) -> Iterator[str]:
    """A path of the build machine tells strangers about it, and makes builds differ."""
    traces = {str(root).encode(), str(Path.home()).encode() + b"/"}
    for name, content in contents.items():
        for trace in traces:
            if trace in content:
                yield f"{name} contains {trace.decode()}, a path of the build machine"


def machine_complaints(contents: dict[str, bytes], *, target: Target) -> Iterator[str]:
    from elftools.elf.elffile import ELFFile

    for name, content in contents.items():
        if not name.endswith(".so"):
            continue
        machine = ELFFile(io.BytesIO(content))["e_machine"]
        if machine != target.elf_machine:
            yield f"{name} is made for {machine}, not {target.elf_machine}"
        newest = max(
            ((int(major), int(minor)) for major, minor in _GLIBC_SYMBOL.findall(content)),
            default=(0, 0),
        )
        if newest > GLIBC:
            yield f"{name} needs glibc {newest[0]}.{newest[1]}, the limit is {GLIBC[0]}.{GLIBC[1]}"


def sdist_complaints(sdist: Path, *, tracked: Iterable[str]) -> Iterator[str]:
    """A source distribution holds every tracked file, so one can test and document from it."""
    with tarfile.open(sdist) as archive:
        members = [member for member in archive.getmembers() if not member.isdir()]
    held = {member.name.partition("/")[2] for member in members}
    wanted = {name for name in tracked if not _UNSHIPPED.match(name)}
    for name in sorted(wanted - held):
        yield f"{name} is missing"
    for name in sorted(held - wanted):
        if not _GENERATED.match(name):
            yield f"{name} is not a file of the project"
    for member in members:
        if not member.isfile():
            yield f"{member.name} is not a regular file"
