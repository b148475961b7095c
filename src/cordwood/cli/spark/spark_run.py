"""What every ``cordwood spark`` command does around its job: session, progress, result, status."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from cordwood.cli.at.target import AT_VARIABLE, BrokerTarget, parse_target
from cordwood.cli.render import Column, output_for
from cordwood.errors import ConfigError, CordwoodError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from cordwood.spark.jobs.job_progress import Report, Step
    from cordwood.spark.jobs.job_report import JobReport

SourceAtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="DIR|URL",
        envvar=AT_VARIABLE,
        help="A data directory, ours or Kafka's, or an archive's URL; else ./data.",
    ),
]
StoreAtOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="DIR", envvar=AT_VARIABLE, help="The store's data directory; else ./data."
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Where Spark runs: local[4], spark://host:7077, yarn, k8s://…; else here.",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A setting of Spark; repeatable."),
]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Say what would be done, and change nothing.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="The result as one JSON object.")]

Job = Callable[["SparkSession | None", "Report"], "JobReport"]

_QUIET: Final = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
_CAUSE: Final = re.compile(r"\s*(?:[a-z_]+\.)*([A-Z]\w*(?:Error|Exception)): (.+)")
_LINE_S: Final = 5.0  # between two lines about the same step, where there is no terminal


def run_job(
    job: Job,
    *,
    name: str,
    master: str | None,
    conf: Sequence[str] | None,
    as_json: bool,
    needs_spark: bool = True,
) -> None:
    """Run it, show what it says, and end with exit code 1 when something is not well."""
    settings = parse_pairs("--conf", conf)
    if needs_spark:
        with _session(name, master, settings) as spark, _plain_errors(name):
            report = job(spark, _Progress().show)
    else:
        report = job(None, _Progress().show)
    show_report(report, as_json=as_json)
    for problem in report.problems:
        typer.secho(f"cordwood: {problem}", err=True, fg="red")
    if report.problems:
        raise typer.Exit(code=1)


@contextmanager
def spark_packages(name: str) -> Iterator[None]:
    """Say what to install where an import inside fails."""
    try:
        yield
    except ImportError as error:
        rule = f"needs Spark: pip install 'cordwood[spark]' ({error})"
        raise ConfigError("cordwood spark", name, rule) from error


@contextmanager
def _session(
    name: str, master: str | None, settings: Mapping[str, str]
) -> Iterator["SparkSession"]:
    """A session, stopped in the end unless someone else had made it."""
    with spark_packages(name):
        from pyspark.sql import SparkSession
    from cordwood.spark.spark_session import session

    is_ours = SparkSession.getActiveSession() is None
    spark = session(f"cordwood {name}", master=master, config={**_QUIET, **settings})
    try:
        yield spark
    finally:
        if is_ours:
            spark.stop()


@contextmanager
def _plain_errors(name: str) -> Iterator[None]:
    """What went wrong in a task, without the traces of both languages around it."""
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        causes = [found for line in str(error).splitlines() if (found := _CAUSE.fullmatch(line))]
        text = causes[-1][2] if causes else str(error).partition("\n")[0]
        raise CordwoodError(f"{name} failed: {text}") from error


def show_report(report: "JobReport", *, as_json: bool) -> None:
    """Rows and totals, for people or as JSON."""
    if as_json:
        whole = {
            "job": report.job,
            "is_dry_run": report.is_dry_run,
            "rows": [dict(row) for row in report.rows],
            "totals": dict(report.totals),
            "problems": list(report.problems),
        }
        sys.stdout.write(json.dumps(whole, default=str) + "\n")
        return
    output = output_for(as_json=False)
    if report.rows:
        first = report.rows[0]
        columns = [Column(name=name, is_number=_is_number(first[name])) for name in report.columns]
        output.table(columns, report.rows)
    if report.totals:
        output.facts(list(report.totals), report.totals)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class _Progress:
    """Steps on standard error: one line that changes on a terminal, else a line now and then."""

    def __init__(self) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._said_s = float("-inf")
        self._step = ""

    def show(self, step: "Step") -> None:
        done = f": {step.done} of {step.total}" if step.total else ""
        text = f"{step.name}{', done' if step.is_over and not done else done}"
        if self._is_terminal:
            typer.echo(f"\r\x1b[K{text}", err=True, nl=step.is_over)
            return
        is_due = time.monotonic() - self._said_s >= _LINE_S
        if step.is_over or step.name != self._step or is_due:
            self._said_s, self._step = time.monotonic(), step.name
            typer.echo(text, err=True)


def source_paths(at: str | None) -> tuple[str, ...]:
    """The data directories that ``--at`` names, or the URL of an archive."""
    if at is not None and urlsplit(at).scheme and "://" in at:
        return (at,)
    return store_paths(at)


def store_paths(at: str | None, *, may_be_new: bool = False) -> tuple[str, ...]:
    """The data directories that ``--at`` names."""
    target = parse_target(at, may_be_new=may_be_new)
    if isinstance(target, BrokerTarget):
        raise ConfigError(
            "--at",
            str(target),
            "is a broker: Spark reads the files, so give the data directory, "
            "which all of its machines must see",
        )
    return target.paths


def parse_pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """``key=value`` texts; a key that is given twice is an error."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ConfigError(option, text, "must be key=value")
        if key.strip() in found:
            raise ConfigError(option, text, f"{key.strip()} is given twice")
        found[key.strip()] = value
    return found
