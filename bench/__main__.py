"""script/bench [SUITE|all] [--quick] [--json FILE] [--plot DIR] [--markdown] [--dir DIR]
             [--only TEXT] [--before DIR]
script/bench --from FILE [--plot DIR] [--markdown]
script/bench compare OLD.json NEW.json

Prints a table of medians, each with its limit or peers from the same run. A missed target is
reported but is not an error: the exit status is 0 unless something failed.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

from bench import compare
from bench.figures import Figures, read_figures, write_figures
from bench.plots import draw_plots
from bench.report import render_machine, render_notes, render_summary, render_tables
from bench.suite_run import RUNS, measure_suite, measure_suites
from cordwood.quantities import GIB

ROOT = Path(__file__).resolve().parent.parent
SUITES = (
    "embedded",
    "compaction",
    "recovery",
    "growth",
    "archive",
    "broker",
    "hostile",
    "console",
    "security",
    "transactions",
    "cluster",
    "processes",
    "spark",
)  # modules in this package, each with a function `row_makers`
ALL = "all"
COMPARE = "compare"  # measures nothing


def main() -> int:
    if sys.argv[1:2] == [COMPARE]:
        return compare.main(sys.argv[2:])
    options = _parse(sys.argv[1:])
    # Exit normally on SIGTERM, so that servers are stopped and files removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if options.plot is not None:
        import_module("matplotlib")  # if it is missing, fail before the run, not after it
    started = time.monotonic()
    figures = read_figures(options.figures) if options.figures else _measure(options)
    taken_s = None if options.figures else time.monotonic() - started
    if options.json is not None:
        write_figures(options.json, figures)
    print(render_machine(figures, runs=RUNS))
    print(f"\n{render_tables(figures, as_markdown=options.markdown)}\n")
    print(render_notes(figures.all_rows))
    print(f"\n{render_summary(figures, taken_s=taken_s)}")
    if options.plot is not None:
        for path in draw_plots(figures, options.plot):
            print(f"drawn: {path}")
    return 1 if figures.broken and not options.figures else 0


def _measure(options: argparse.Namespace) -> Figures:
    with _scratch_directory(options.dir, is_quick=options.quick) as directory:
        if options.suite == ALL:
            return measure_suites(SUITES, directory, is_quick=options.quick)
        return measure_suite(
            options.suite,
            directory,
            is_quick=options.quick,
            only=options.only,
            before=options.before,
        )


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="script/bench", description="Measures Cordwood.")
    parser.add_argument("suite", nargs="?", choices=(*SUITES, ALL), default=SUITES[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, rough figures")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures and samples")
    parser.add_argument("--plot", type=Path, metavar="DIR", help="draw plots for each suite")
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="only rows with TEXT in their name"
    )
    parser.add_argument(
        "--from",
        dest="figures",
        type=Path,
        metavar="FILE",
        help="measure nothing; print and draw the figures that --json wrote",
    )
    parser.add_argument(
        "--dir",
        type=Path,
        metavar="DIR",
        help="directory for the data, on the disk to measure (default: $TMPDIR, else build/)",
    )
    parser.add_argument(
        "--before",
        type=lambda text: Path(text).resolve(),
        metavar="DIR",
        help="checkout of an earlier version, with its .venv: `security` and `transactions` "
        "compare plain rows",
    )
    options = parser.parse_args(arguments)
    for name in ("only", "before"):
        if options.suite == ALL and getattr(options, name):
            parser.error(f"--{name} needs one suite instead of `all`")
    return options


@contextmanager
def _scratch_directory(parent: Path | None, *, is_quick: bool) -> Iterator[Path]:
    """An empty directory, removed at the end. The default is not /tmp, which may be in memory."""
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
