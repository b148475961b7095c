"""Compile the kernels next to their sources; do nothing if they are up to date.

``build/kernels.json`` records the form (``compiled`` or ``plain``) and a digest of every input.
Run it with the Python of the virtual environment. Exit status: 0 if the kernels are up to date,
3 if there is no compiler and they stay plain, anything else if a kernel does not build.
"""

from __future__ import annotations

import hashlib
import importlib.machinery
import json
import os
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from c_compiler import describe_candidates, find_compiler
from kernel_extensions import (
    DIRECTIVES,
    ROOT,
    KernelBuild,
    kernel_extensions,
    kernel_names,
    kernel_source,
)
from setuptools import Distribution

RECORD = ROOT / "build" / "kernels.json"
PLAIN_STATUS = 3


def main() -> int:
    names = [name for name in kernel_names() if kernel_source(name).exists()]
    inputs = describe_inputs(names)
    record = read_record()
    if record.get("inputs") == inputs and is_in_place(names, str(record["form"])):
        return 0 if record["form"] == "compiled" else PLAIN_STATUS
    compiler = find_compiler()
    if compiler is None:
        remove_extensions(names, keep=set())
        write_record("plain", inputs)
        return PLAIN_STATUS
    print(f"compiling {', '.join(names)} with {compiler.name}", file=sys.stderr)
    RECORD.unlink(missing_ok=True)
    built = build(names)
    remove_extensions(names, keep=built)
    write_record("compiled", inputs)
    return 0


def describe_inputs(names: list[str]) -> dict[str, str]:
    """Everything that determines the extension modules; sources as digests, under their names."""
    digests = {name: hashlib.sha256(kernel_source(name).read_bytes()).hexdigest() for name in names}
    for path in sorted((ROOT / "src").rglob("*.pxd")):  # inlined into the kernels
        digests[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return digests | {
        "directives": repr(DIRECTIVES),
        "cython": metadata.version("Cython"),
        "python": importlib.machinery.EXTENSION_SUFFIXES[0],
        "compilers": describe_candidates(),
        "flags": os.environ.get("CFLAGS", "") + os.environ.get("LDFLAGS", ""),
    }


def is_in_place(names: list[str], form: str) -> bool:
    present = [bool(extensions_of(name)) for name in names]
    return all(present) if form == "compiled" else not any(present)


def build(names: list[str]) -> set[Path]:
    """Compile elsewhere, then rename into place: an import meanwhile sees the old or the new."""
    RECORD.parent.mkdir(exist_ok=True)
    built = set()
    with tempfile.TemporaryDirectory(prefix="kernels-", dir=RECORD.parent) as work:
        command = KernelBuild(Distribution({"name": "cordwood", "package_dir": {"": "src"}}))
        command.distribution.ext_modules = [
            extension for extension in kernel_extensions() if extension.name in names
        ]
        command.is_required = True
        command.parallel = os.cpu_count()
        command.build_lib, command.build_temp = f"{work}/lib", f"{work}/temp"
        command.ensure_finalized()
        command.run()
        for name in names:
            product = Path(command.get_ext_fullpath(name))
            target = kernel_source(name).parent / product.name
            os.replace(product, target)
            built.add(target)
    return built


def extensions_of(name: str) -> list[Path]:
    source = kernel_source(name)
    return sorted(source.parent.glob(f"{source.stem}.*.so")) + sorted(
        source.parent.glob(f"{source.stem}.so")
    )


def remove_extensions(names: list[str], *, keep: set[Path]) -> None:
    """Remove extension modules not in `keep`: a stale one would hide the source beside it."""
    for name in names:
        for path in extensions_of(name):
            if path not in keep:
                path.unlink(missing_ok=True)


def read_record() -> dict[str, object]:
    try:
        record = json.loads(RECORD.read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}


def write_record(form: str, inputs: dict[str, str]) -> None:
    RECORD.parent.mkdir(exist_ok=True)
    scratch = RECORD.with_suffix(".tmp")
    scratch.write_text(json.dumps({"form": form, "inputs": inputs}, indent=1) + "\n")
    os.replace(scratch, RECORD)


if __name__ == "__main__":
    os.chdir(ROOT)
    raise SystemExit(main())
