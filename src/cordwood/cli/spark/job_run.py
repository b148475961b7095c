"""Runs the job of a ``cordwood spark`` command: session, progress, report, exit code."""

import functools
import inspect
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Annotated, Final
from urllib.parse import urlsplit

import typer

from cordwood.cli.at.target import AT_VARIABLE, BrokerTarget, parse_target
from cordwood.cli.failures import EXIT_FAILURE
from cordwood.cli.options import DryRunOption, parse_pairs
from cordwood.cli.render import Column, output_for
from cordwood.errors import ConfigError, CordwoodError
from cordwood.value_class import dataclass

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
        help="Data directory (Cordwood's or Kafka's) or archive URL. Default: ./data.",
    ),
]
StoreAtOption = Annotated[
    str | None,
    typer.Option(
        "--at", metavar="DIR", envvar=AT_VARIABLE, help="Data directory. Default: ./data."
    ),
]
MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="URL",
        help="Spark master: local[4], spark://host:7077, yarn, k8s://… Default: this machine.",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="Set a Spark property; repeatable."),
]
ResultAsJsonOption = Annotated[
    bool, typer.Option("--json", help="Print the result as one JSON object.")
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkJob:
    """A job that a command prepared. Most dry runs need no Spark session."""

    run: Callable[["SparkSession | None", "Report"], "JobReport"]
    needs_spark: bool = True


_QUIET: Final = {"spark.log.level": "ERROR", "spark.ui.showConsoleProgress": "false"}
_LINE_S: Final = 5.0  # between two lines about the same step, without a terminal


def job_command(prepare: Callable[..., SparkJob]) -> Callable[..., None]:
    """The command that runs the job which `prepare` returns, and prints its report.

    It has the parameters of `prepare`, followed by those of all jobs: ``--master``, ``--conf``,
    ``--dry-run``, which `prepare` gets too, and ``--json``. Exit code 1 if the job reports a
    problem.
    """

    @functools.wraps(prepare)
    def command(
        *given: object,
        master: str | None,
        conf: list[str] | None,
        dry_run: bool,
        as_json: bool,
        **named: object,
    ) -> None:
        with _spark_packages(prepare.__name__):
            job = prepare(*given, dry_run=dry_run, **named)
        settings = parse_pairs("--conf", conf)
        with _traced(prepare.__name__, named, is_real=not dry_run) as note:
            report = _run(job, prepare.__name__, master, settings, note)
        show_report(report, as_json=as_json)
        for problem in report.problems:
            typer.secho(f"cordwood: {problem}", err=True, fg="red")
        if report.problems:
            raise typer.Exit(EXIT_FAILURE)

    shared = {
        "master": (MasterOption, None),
        "conf": (ConfOption, None),
        "dry_run": (DryRunOption, False),
        "as_json": (ResultAsJsonOption, False),
    }
    own = inspect.signature(prepare).parameters.values()
    parameters = [
        *(parameter for parameter in own if parameter.name not in shared),
        *(
            inspect.Parameter(
                name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=option
            )
            for name, (option, default) in shared.items()
        ),
    ]
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {each.name: each.annotation for each in parameters}
    return command


def _run(
    job: SparkJob, name: str, master: str | None, settings: Mapping[str, str], note: "Report"
) -> "JobReport":
    shown = _Progress()

    def show(step: "Step") -> None:
        shown.show(step)
        note(step)

    if not job.needs_spark:
        return job.run(None, show)
    with _session(name, master, settings) as spark, _plain_errors(name):
        return job.run(spark, show)


@contextmanager
def _traced(kind: str, named: Mapping[str, object], *, is_real: bool) -> Iterator["Report"]:
    """Leave a trace of the job in its store, for people who look at it; see `job_traces`."""
    from cordwood.log.beside.job_traces import JobTracer

    at = named.get("at")
    paths: tuple[str, ...] = ()
    if is_real:
        with suppress(CordwoodError):  # a store that is new has nobody who looks at it
            paths = source_paths(at if isinstance(at, str) else None)
    if not paths or "://" in paths[0]:
        yield lambda _: None
        return
    with JobTracer(paths[0], kind=kind, subject=_subject(named)) as tracer:
        yield lambda step: tracer.note(step.name, done=step.done, total=step.total)


def _subject(named: Mapping[str, object]) -> str:
    """What the job is about: its topics, and where they go."""
    topics = named.get("topics") or named.get("topic") or "all topics"
    text = topics if isinstance(topics, str) else ", ".join(map(str, topics))  # type: ignore[call-overload]
    target = named.get("table") or named.get("to_topic")
    return f"{text} to {target}" if target else str(text)


@contextmanager
def _spark_packages(name: str) -> Iterator[None]:
    """Say what to install if an import in the block fails."""
    try:
        yield
    except ImportError as error:
        rule = f"needs Spark: pip install 'cordwood[spark]' ({error})"
        raise ConfigError("cordwood spark", name, rule) from error


@contextmanager
def _session(
    name: str, master: str | None, settings: Mapping[str, str]
) -> Iterator["SparkSession"]:
    """A Spark session, stopped at the end unless it already existed."""
    with _spark_packages(name):
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
    """Report the error of a task in one line. `--debug` shows Spark's traces after it."""
    from pyspark.errors import PySparkException

    from cordwood.spark.error_lines import explain

    try:
        yield
    except PySparkException as error:
        raise CordwoodError(f"{name} failed: {explain(error)}") from error


def show_report(report: "JobReport", *, as_json: bool) -> None:
    """Print the rows and totals, as a table or as JSON."""
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


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


class _Progress:
    """Shows steps on standard error: one changing line on a terminal, else a line now and then."""

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
    """The data directories or the archive URL that ``--at`` names."""
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
            "must be a data directory, not a broker: Spark reads the files, and all its machines "
            "must be able to",
        )
    return target.paths
