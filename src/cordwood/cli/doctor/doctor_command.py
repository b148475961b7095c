"""``cordwood doctor``: what is installed, what the machine is like, how a store or a broker is."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.at.target import AT_VARIABLE, DEFAULT_DIRECTORY, AtOption

if TYPE_CHECKING:
    from cordwood.cli.at.target import DirectoryTarget, Target
    from cordwood.cli.doctor.health_finding import Finding


def doctor(
    *,
    at: AtOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Look for what is wrong or missing here, and say how to mend it. Exit code 1 on a problem.

    Looks at Python, Cordwood, its extras, Java for Spark, open files, memory and the clock;
    and at the target, where there is one: the disk (its syncs are measured for half a second on a
    file without a name), who holds the store, how it was left, and what cannot be opened; or
    whether the broker answers, and how soon.

    \b
    Examples:
      cordwood doctor
      cordwood doctor --at /srv/data
    """
    from cordwood.cli.doctor.doctor_report import show_findings

    target = _target(at)
    findings = list(_findings(target))
    if show_findings(findings, as_json=as_json):
        raise typer.Exit(1)


def _target(at: str | None) -> "Target | None":
    """What is named, or ./data where it is; nothing has to be there to ask the doctor."""
    from cordwood.cli.at.target import parse_target

    if (at is None or not at.strip()) and not os.path.isdir(DEFAULT_DIRECTORY):
        return None
    return parse_target(at)


def _findings(target: "Target | None") -> "Iterator[Finding]":
    from cordwood.cli.at.target import BrokerTarget, DirectoryTarget
    from cordwood.cli.doctor.broker_check import BrokerCheck
    from cordwood.cli.doctor.disk_check import check_disk
    from cordwood.cli.doctor.java_check import check_java
    from cordwood.cli.doctor.machine_check import check_machine
    from cordwood.cli.doctor.software_check import check_software
    from cordwood.cli.doctor.store_condition import check_store, read_contents

    yield from check_software()
    yield check_java(os.environ)
    about_broker: Sequence[Finding] = ()
    files = target if isinstance(target, DirectoryTarget) else None
    if isinstance(target, BrokerTarget):
        check = BrokerCheck(target)
        about_broker = list(check.findings())
        files = check.files
    contents, unreadable = None, None
    if files is not None:
        try:
            contents = read_contents(files.paths)
        except OSError as error:
            unreadable = _unreadable(files, error)
    yield from check_machine(None if contents is None else contents.files_needed)
    free_bytes_min, about_settings = _free_bytes_min()
    yield about_settings
    yield from about_broker
    if unreadable is not None:
        yield unreadable
    if target is None:
        yield _no_target()
    if files is None or contents is None:
        return
    for path in files.paths:
        yield from check_disk(path, free_bytes_min=free_bytes_min)
    yield from check_store(files, contents)


def _free_bytes_min() -> "tuple[int, Finding]":
    """The free space below which appends are refused here, and how the configuration is."""
    from cordwood.cli.doctor.health_finding import Finding, Verdict
    from cordwood.errors import ConfigError
    from cordwood.log.store.upkeep_tasks import FREE_BYTES_MIN
    from cordwood.settings import DEFAULT_SOURCE, load_settings

    area, name = "machine", "configuration"
    try:
        settings = load_settings()
    except (ConfigError, OSError) as error:
        return FREE_BYTES_MIN, Finding(
            area=area,
            name=name,
            value=str(error),
            verdict=Verdict.PROBLEM,
            advice="`cordwood serve` would not start with it: mend the key that is named",
        )
    changed = sum(1 for setting in settings.effective if setting.source != DEFAULT_SOURCE)
    value = f"{changed} keys set; `cordwood config show --changed`" if changed else "all defaults"
    return settings.store.log_dir_free_bytes_min, Finding(area=area, name=name, value=value)


def _unreadable(files: "DirectoryTarget", error: OSError) -> "Finding":
    from cordwood.cli.doctor.health_finding import Finding, Verdict

    return Finding(
        area=f"store {files}",
        name="contents",
        value=f"{error.filename}: {error.strerror}",
        verdict=Verdict.PROBLEM,
        advice="run as the user who owns it, or give others the right to read",
    )


def _no_target() -> "Finding":
    from cordwood.cli.doctor.health_finding import Finding, Verdict

    return Finding(
        area="store",
        name="target",
        value="none given",
        verdict=Verdict.NOTE,
        advice=f"--at DIR, --at HOST:PORT or {AT_VARIABLE} has a store or a broker looked at too",
    )
