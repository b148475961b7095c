"""Set up ``.venv``: the locked packages, cordwood in editable form, and compiled kernels.

script/bootstrap calls it with any Python 3.11 or newer; it uses only the standard library. Each
step writes a stamp of its inputs after it has finished. So a second run is quick, and a run after
an interruption completes the rest. One bootstrap works at a time; the others wait for it.

With the argument `demo`, it installs only what the demo needs. The compiler works while pip
fetches packages.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
BUILD_LOCK = ROOT / "requirements" / "build.txt"
DEMO_LOCK = ROOT / "requirements" / "demo.txt"
LOCK = ROOT / "requirements" / "dev.txt"
ZIG_LOCK = ROOT / "requirements" / "zig.txt"
PLAIN_STATUS = 3  # of build_in_place.py: no compiler


def main() -> int:
    with one_at_a_time():
        version = venv_version()
        if version is None:
            create_venv()
            version = venv_version()
        packages = Packages(f"{version} {sys.platform} {os.uname().machine}")
        packages.install_for_building()
        install_cordwood()
        with kernel_build() as building:
            packages.install(is_for_demo=sys.argv[1:] == ["demo"])
            status = building.wait()
        return finish_kernels(status)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold a file lock. The kernel releases it when the process ends, for whatever reason."""
    with open(ROOT / ".bootstrap.lock", "w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("waiting for another bootstrap to finish")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def venv_version() -> str | None:
    """The version of the environment's Python; None if there is no working one."""
    if Path(sys.prefix) == VENV:
        return sys.version
    question = "import sys; print(sys.version if sys.version_info >= (3, 11) else '')"
    try:
        answer = subprocess.run(
            [PYTHON, "-c", question], capture_output=True, text=True, check=True
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer.rstrip("\n") or None


def create_venv() -> None:
    say(f"creating .venv with Python {sys.version.split()[0]}")
    base = Path(sys.base_prefix, "bin", f"python{sys.version_info[0]}.{sys.version_info[1]}")
    creator = base if base.exists() else Path(sys.executable)
    finished = subprocess.run([creator, "-m", "venv", "--clear", VENV], check=False)
    if finished.returncode != 0:
        raise SystemExit(
            "bootstrap: Python could not create a virtual environment; "
            "if your system has a separate package for venv, install it (python3-venv)"
        )


class Packages:
    """The locked packages of `.venv`. Those for development include the others."""

    def __init__(self, environment: str) -> None:
        self._all = digest([LOCK], environment)
        self._for_demo = digest([DEMO_LOCK], environment)
        self._for_building = digest([BUILD_LOCK], environment)

    def install_for_building(self) -> None:
        if is_current("packages", self._all) or is_current("demo-packages", self._for_demo):
            return
        with step("build-packages", self._for_building) as is_due:
            if is_due:
                pip("install", "--require-hashes", "--requirement", BUILD_LOCK)

    def install(self, *, is_for_demo: bool) -> None:
        if is_for_demo and not is_current("packages", self._all):
            with step("demo-packages", self._for_demo) as is_due:
                if is_due:
                    say("installing the packages of the demo")
                    # Python compiles what it imports; pip would compile all of pyspark and pandas.
                    pip("install", "--no-compile", "--require-hashes", "--requirement", DEMO_LOCK)
            return
        with step("packages", self._all) as is_due:
            if is_due:
                say("installing the locked packages")
                pip("install", "--require-hashes", "--requirement", LOCK)


def install_cordwood() -> None:
    version = ROOT / "src" / "cordwood" / "__init__.py"
    sources = [ROOT / "pyproject.toml", ROOT / "setup.py", version, Path(__file__)]
    with step("cordwood", digest(sources, str(ROOT))) as is_due:
        if is_due:
            say("installing cordwood in editable form")
            options = ("--no-deps", "--no-build-isolation", "--editable", ROOT)
            pip("install", *options, environment={"CORDWOOD_CC": "none"})


@contextmanager
def kernel_build() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([PYTHON, ROOT / "build_support" / "build_in_place.py"])
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait()


def finish_kernels(status: int) -> int:
    """If there was no compiler, install one and build again."""
    if status == PLAIN_STATUS and os.environ.get("CORDWOOD_CC", "") in ("", "zig"):
        try:
            install_zig()
        except SystemExit:
            say("could not install ziglang")
        else:
            with kernel_build() as building:
                status = building.wait()
    if status == PLAIN_STATUS:
        say("warning: no C compiler; the kernels run as plain Python: correct, but slow")
        return 0
    return status


def install_zig() -> None:
    with step("zig", digest([ZIG_LOCK], "")) as is_due:
        if is_due:
            say("no C compiler found: installing the one in ziglang")
            pip("install", "--require-hashes", "--requirement", ZIG_LOCK)


@contextmanager
def step(name: str, made_from: str) -> Iterator[bool]:
    """Yield whether the step is due; write its stamp if the body ends without an error."""
    is_due = not is_current(name, made_from)
    yield is_due
    if is_due:
        stamp_of(name).write_text(made_from)


def is_current(name: str, made_from: str) -> bool:
    stamp = stamp_of(name)
    return stamp.exists() and stamp.read_text() == made_from


def stamp_of(name: str) -> Path:
    return VENV / f"cordwood-{name}.stamp"


def digest(paths: list[Path], rest: str) -> str:
    total = hashlib.sha256(rest.encode())
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()


def pip(*arguments: str | Path, environment: dict[str, str] | None = None) -> None:
    common = ("--quiet", "--no-input", "--disable-pip-version-check")
    if subprocess.run([PYTHON, "-c", "import pip"], capture_output=True, check=False).returncode:
        subprocess.run([PYTHON, "-m", "ensurepip"], check=True, capture_output=True)
    finished = subprocess.run(
        [PYTHON, "-m", "pip", *arguments, *common],
        check=False,
        env=os.environ | (environment or {}),
    )
    if finished.returncode != 0:
        raise SystemExit(f"bootstrap: pip {arguments[0]} failed; see its output above")


def say(text: str) -> None:
    print(f"bootstrap: {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
