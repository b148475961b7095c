"""``cordwood spark init-pipeline``: write a project for Spark's declarative pipelines."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from cordwood.cli.options import DryRunOption, TopicArgument
from cordwood.cli.spark.job_run import ResultAsJsonOption, SourceAtOption, source_paths
from cordwood.cli.spark.table_commands import read_schema


def init_pipeline(
    topic: TopicArgument,
    project: Annotated[
        Path, typer.Argument(metavar="DIR", show_default=False, help="Directory of the project.")
    ],
    *,
    at: SourceAtOption = None,
    value_schema: Annotated[
        str,
        typer.Option(
            "--value-schema",
            metavar="SCHEMA",
            help="Fields of JSON values: 'id BIGINT, name STRING', @FILE, infer, or none.",
        ),
    ] = "infer",
    dry_run: DryRunOption = False,
    as_json: ResultAsJsonOption = False,
) -> None:
    """Write a pipeline that keeps tables of a topic: spark-pipelines runs it.

    A compacted topic also gets a table with the newest value of each key.

    \b
    Examples:
      cordwood spark init-pipeline orders ./pipeline --at data
    """
    from cordwood.spark.jobs.pipeline_plan import plan_project
    from cordwood.spark.jobs.pipeline_project import RUN_COMMAND, check_empty

    home = project.absolute()
    paths = source_paths(at)
    found = plan_project(paths, topic, str(home), read_schema(value_schema))
    files = found.files()
    check_empty((name for name in files if (home / name).exists()), files, str(home))
    if not dry_run:
        for name, text in files.items():
            path = home / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if as_json:
        sys.stdout.write(json.dumps({"project": str(home), "files": sorted(files)}) + "\n")
        return
    for name in files:
        typer.echo(f"{'would write' if dry_run else 'wrote'} {home / name}")
    if not dry_run:
        typer.echo(f"run it with: cd {shlex.quote(str(home))} && {RUN_COMMAND}", err=True)
