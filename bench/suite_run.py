"""Measures one suite in this process, or several in turn, each in its own process.

A failure is reported and the rest is still measured: one row must not spoil a run of an hour.
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
_STOP_TIMEOUT_S: Final = 90.0  # for a suite to end, with all its servers


def measure_suite(
    suite: str, directory: Path, *, is_quick: bool, only: str, before: Path | None = None
) -> Figures:
    """Measure the rows whose maker has `only` in its name; there must be at least one."""
    makers: dict[str, RowMaker] = import_module(f"bench.{suite}").row_makers()
    chosen = {name: make for name, make in makers.items() if only in name}
    if not chosen:
        known = ", ".join(makers)
        raise SystemExit(f"bench: no row of {suite} has {only!r} in its name; rows: {known}")
    machine = describe_machine(directory)
    warm_memory(directory / "memory", (1 if is_quick else 2) * GIB)
    rows: list[Row] = []
    broken: dict[str, str] = {}
    with ExitStack() as resources:
        context = Context(
            directory=directory,
            is_quick=is_quick,
            runs=RUNS,
            say=say,
            resources=resources,
            before=before,
        )
        for name, make in chosen.items():
            try:
                rows += _measured(f"{suite}: {name}", make, context)
            except Exception as error:  # after any error the next rows are still measured
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
    """Measure each suite in its own process, so that they do not affect each other."""
    return joined([_measured_apart(suite, directory, is_quick=is_quick) for suite in suites])


def _measured_apart(suite: str, directory: Path, *, is_quick: bool) -> Figures:
    path = directory / f"{suite}.json"
    options = ["--dir", str(directory), "--json", str(path), *(["--quick"] if is_quick else [])]
    started = time.monotonic()
    status = _run([sys.executable, "-m", "bench", suite, *options])
    say(f"{suite} took {time.monotonic() - started:.0f} s")
    if path.exists():
        return read_figures(path)
    reason = f"its process exited with {status} and wrote no figures"
    return Figures(is_quick=is_quick, machine={}, rows={}, broken={suite: reason})


def _run(command: Sequence[str]) -> int:
    """Run it; return its exit status. If this process is stopped, it stops that one too."""
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
    os.sync()  # so that the kernel does not write back data of earlier rows meanwhile
    neighbours = Neighbours()
    rows = make(context)
    share = neighbours.share()
    context.say(f"{title} took {time.monotonic() - started:.1f} s")
    return [replace(row, others_share=share) for row in rows]


def say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)
