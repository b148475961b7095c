"""script/bench [SUITE] [--quick] [--json FILE] [--markdown] [--dir DIR] [--only TEXT]

Prints a table of medians, each beside its limit or peer in the same run. A target that is not
reached is reported, not an error: the exit status is 0 unless something broke.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from importlib import import_module
from pathlib import Path

from bench.machine import Neighbours, describe_machine
from bench.measure import DISTURBED_SHARE, Context, Row
from bench.peers import warm_memory
from bench.report import render_markdown, render_notes, render_table, write_json
from varve.quantities import GIB

ROOT = Path(__file__).resolve().parent.parent
SUITES = (
    "embedded",
    "compaction",
    "broker",
)  # each the name of a module here with a function `row_makers`
RUNS = 3


def main() -> int:
    options = _parse(sys.argv[1:])
    # Leave the usual way when asked to end, so that servers are stopped and files removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    with _scratch_directory(options.dir, is_quick=options.quick) as directory:
        machine = describe_machine(directory)
        started = time.monotonic()
        warm_memory(directory / "memory", (1 if options.quick else 2) * GIB)
        with ExitStack() as resources:
            context = Context(
                directory=directory,
                is_quick=options.quick,
                runs=RUNS,
                say=lambda text: print(f"bench: {text}", file=sys.stderr, flush=True),
                resources=resources,
            )
            rows = list(_rows(options.suite, context, options.only))
        machine["load"] += f", {os.getloadavg()[0]:.2f} after it"
        machine |= context.facts
    if not rows:
        raise SystemExit(f"bench: no rows of {options.suite} have {options.only!r} in their name")
    if options.json is not None:
        write_json(options.json, machine, rows, suite=options.suite, is_quick=options.quick)
    print("\n".join(f"{name + ':':10}{fact}" for name, fact in machine.items()))
    print(
        f"{'runs:':10}{RUNS} after a warm-up; median, ± half the spread; ratio above 1: Varve ahead"
    )
    print(f"\n{(render_markdown if options.markdown else render_table)(rows)}\n")
    print(render_notes(rows))
    judged = [row for row in rows if row.target is not None and not row.is_disturbed]
    disturbed = [row for row in rows if row.target is not None and row.is_disturbed]
    print(
        f"\n{sum(row.is_reached is True for row in judged)} of {len(judged)} targets reached, "
        f"in {time.monotonic() - started:.0f} s"
        + (" (--quick: small sizes, rough figures)" if options.quick else "")
    )
    if disturbed:
        print(
            f"{len(disturbed)} not judged: other processes took more than {DISTURBED_SHARE:.0%} of "
            "the machine while they were measured"
        )
    return 0


def _rows(suite: str, context: Context, only: str) -> Iterator[Row]:
    makers: dict[str, Callable[[Context], list[Row]]] = import_module(f"bench.{suite}").row_makers()
    for name, make in makers.items():
        if only not in name:
            continue
        started = time.monotonic()
        context.say(f"{suite}: {name}")
        neighbours = Neighbours()
        rows = make(context)
        share = neighbours.share()
        context.say(f"{suite}: {name} took {time.monotonic() - started:.1f} s")
        yield from (replace(row, others_share=share) for row in rows)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/bench", description="Measures Varve.")
    parser.add_argument("suite", nargs="?", choices=SUITES, default=SUITES[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, rough figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and samples")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--only", default="", metavar="TEXT", help="rows with TEXT in their name")
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="where the data goes: on the disk to measure (default: $TMPDIR, else build/)",
    )
    return parser.parse_args(arguments)


@contextmanager
def _scratch_directory(parent: Path | None, *, is_quick: bool) -> Iterator[Path]:
    """An empty directory, removed at the end. Not /tmp by default: that may be memory."""
    if parent is None:
        parent = Path(os.environ.get("TMPDIR", ROOT / "build"))
    parent.mkdir(parents=True, exist_ok=True)
    needed, free = (4 if is_quick else 14) * GIB, shutil.disk_usage(parent).free
    if free < needed:
        raise SystemExit(f"bench: {parent} has {free / GIB:.0f} of {needed / GIB:.0f} GiB needed")
    with tempfile.TemporaryDirectory(prefix="bench-", dir=parent) as path:
        yield Path(path)


if __name__ == "__main__":
    raise SystemExit(main())
