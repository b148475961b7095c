"""One suite measured in this process, or several of them one after the other, each in its own.

What breaks is reported and the rest goes on: a run of an hour must not be lost to its last row.
"""

import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Final

from bench.figures import Figures, joined, read_figures
from bench.machine import Neighbours, describe_machine, load_now
from bench.measure import Context, Row, RowMaker
from bench.peers import warm_memory
from cordwood.quantities import GIB

RUNS: Final = 3
_STOP_TIMEOUT_S: Final = 90.0  # for a suite that was asked to end, with all its servers


def measure_suite(suite: str, directory: Path, *, is_quick: bool, only: str) -> Figures:
    """The rows with `only` in the name of their maker; at least one must have it."""
    makers: dict[str, RowMaker] = import_module(f"bench.{suite}").row_makers()
    chosen = {name: make for name, make in makers.items() if only in name}
    if not chosen:
        known = ", ".join(makers)
        raise SystemExit(f"bench: no rows of {suite} have {only!r} in their name; it has: {known}")
    machine = describe_machine(directory)
    warm_memory(directory / "memory", (1 if is_quick else 2) * GIB)
    rows: list[Row] = []
    broken: dict[str, str] = {}
    with ExitStack() as resources:
        context = Context(
            directory=directory, is_quick=is_quick, runs=RUNS, say=say, resources=resources
        )
        for name, make in chosen.items():
            try:
                rows += _measured(f"{suite}: {name}", make, context)
            except Exception as error:  # whatever it is, the next rows are measured
                traceback.print_exc()
                broken[f"{suite}: {name}"] = f"{type(error).__name__}: {error}"
    machine["load"] += f", {load_now()} after it"
    return Figures(
        is_quick=is_quick,
        machine=machine | context.facts,
        rows={suite: tuple(rows)},
        broken=broken,
    )


def measure_suites(suites: Sequence[str], directory: Path, *, is_quick: bool) -> Figures:
    """Each in a process of its own, so that none finds the memory or the cores of another."""
    return joined([_measured_apart(suite, directory, is_quick=is_quick) for suite in suites])


def _measured_apart(suite: str, directory: Path, *, is_quick: bool) -> Figures:
    path = directory / f"{suite}.json"
    options = ["--dir", str(directory), "--json", str(path), *(["--quick"] if is_quick else [])]
    started = time.monotonic()
    status = _run([sys.executable, "-m", "bench", suite, *options])
    say(f"{suite} took {time.monotonic() - started:.0f} s")
    if path.exists():
        return read_figures(path)
    reason = f"its process ended with {status} and left no figures"
    return Figures(is_quick=is_quick, machine={}, rows={}, broken={suite: reason})


def _run(command: Sequence[str]) -> int:
    """Its exit status. Should this process be asked to end, the other is, and stops its servers."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        return process.wait()
    except BaseException:
        process.terminate()
        process.wait(_STOP_TIMEOUT_S)
        raise


def _measured(title: str, make: RowMaker, context: Context) -> list[Row]:
    started = time.monotonic()
    context.say(title)
    os.sync()  # what rows before it wrote is not written back while this one is measured
    neighbours = Neighbours()
    rows = make(context)
    share = neighbours.share()
    context.say(f"{title} took {time.monotonic() - started:.1f} s")
    return [replace(row, others_share=share) for row in rows]


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
