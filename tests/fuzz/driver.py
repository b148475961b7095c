"""`script/fuzz TARGET --seconds N`: feed a parser changed input until time is up.

With atheris installed it drives, guided by coverage; without, `mutations` does. The work runs
in a child process that keeps its input in a shared map: when a kernel brings the process down,
the input is still there. Whatever fails is kept in `corpus/TARGET/`, and the default tests run
it from then on.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import importlib
import importlib.util
import mmap
import os
import resource
import sys
import time
import traceback
from pathlib import Path
from random import Random
from typing import Any, Final

from fuzz.mutations import INPUT_BYTES_MAX, mutate
from fuzz.target import TARGETS, Target

for _module in (
    "targets",
    "wire_targets",
    "inbox_targets",
    "sasl_targets",
    "client_targets",
    "cluster_targets",
    "security_targets",
):
    importlib.import_module(f"fuzz.{_module}")

CORPUS: Final = Path(__file__).with_name("corpus")
_MEMORY_BYTES_MAX: Final = 4 << 30
_SLOW_S: Final = 2.0
_NEW_KEPT_MAX: Final = 500


def corpus_of(target: Target) -> list[bytes]:
    directory = CORPUS / target.name
    return [path.read_bytes() for path in sorted(directory.glob("*.bin"))]


def keep(target: Target, data: bytes) -> Path:
    """Add an input to the regressions of a target."""
    directory = CORPUS / target.name
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.write_bytes(data)
    return path


class Slate:
    """The input under test, where the parent finds it should the child be gone."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, INPUT_BYTES_MAX + 8)

    def write(self, data: bytes) -> None:
        self._map[:4] = len(data).to_bytes(4, "big")
        self._map[8 : 8 + len(data)] = data

    def read(self) -> bytes:
        return self._map[8 : 8 + int.from_bytes(self._map[:4], "big")]


def fuzz(target: Target, seconds: float, seed: int, slate: Slate) -> int:
    """Runs until time is up or something fails, which stays on the slate. Returns the count."""
    rng, count = Random(seed), 0
    pool = [*target.seeds, *corpus_of(target)]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for _ in range(50):
            data = mutate(rng, pool)
            slate.write(data)
            started = time.monotonic()
            is_accepted = _run(target, data)
            if time.monotonic() - started > _SLOW_S:
                raise TimeoutError(f"one input took {time.monotonic() - started:.1f} s")
            count += 1
            # What is still accepted is a better start than what is refused at the first byte.
            if is_accepted and len(pool) < _NEW_KEPT_MAX and data not in pool:
                pool.append(data)
    return count


def _run(target: Target, data: bytes) -> bool:
    try:
        target.run(data)
    except target.refusals:
        return False
    return True


def fuzz_guided(target: Target, seconds: float, slate: Slate) -> int:
    """With coverage as the guide."""
    atheris: Any = importlib.import_module("atheris")
    count = 0

    def one_input(data: bytes) -> None:
        nonlocal count
        slate.write(data)
        target(data)
        count += 1

    with contextlib.suppress(SystemExit):
        arguments = [f"-max_total_time={int(seconds)}", f"-max_len={INPUT_BYTES_MAX}"]
        atheris.Setup([sys.argv[0], *arguments], one_input)
        atheris.Fuzz()
    return count


def run_in_child(target: Target, seconds: float, seed: int) -> bool:
    """Whether nothing failed; what did is kept."""
    slate = Slate()
    pid = os.fork()
    if pid == 0:
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES_MAX, _MEMORY_BYTES_MAX))
        status = 1
        try:
            if importlib.util.find_spec("atheris") is not None:
                count = fuzz_guided(target, seconds, slate)
            else:
                count = fuzz(target, seconds, seed, slate)
            print(f"{target.name}: {count} inputs, nothing failed", flush=True)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)
    if status == 0:
        return True
    path = keep(target, slate.read())
    how = f"signal {os.WTERMSIG(status)}" if os.WIFSIGNALED(status) else "an error"
    print(f"{target.name}: FAILED with {how}; the input is kept in {path}")
    return False


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="script/fuzz", description="Fuzz what parses bytes.")
    parser.add_argument("target", choices=[*TARGETS, "all"])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="of the built-in driver")
    options = parser.parse_args(arguments)
    chosen = list(TARGETS) if options.target == "all" else [options.target]
    results = [run_in_child(TARGETS[name], options.seconds, options.seed) for name in chosen]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
