"""``cordwood doctor``: checks the installation, the machine, and a store or a broker."""

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

import typer

from cordwood.cli.at.target import AT_VARIABLE, DEFAULT_DIRECTORY
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.readable_values import counted

if TYPE_CHECKING:
    from cordwood.cli.at.target import DirectoryTarget, Target
    from cordwood.cli.doctor.findings import Finding
    from cordwood.settings import Settings

_AT: Final = "--at"


def doctor(
    *,
    at: AtOption = None,
    as_json: JsonOption = False,
) -> None:
    """Look for problems with the installation, the machine, a store or a broker, and say how to fix
    them. Exit code 1 if there is a problem.

    The command checks Python, Cordwood, its extras, Java for Spark, open files, memory and the
    clock. For a directory it checks the disk (it measures syncs for half a second on an unnamed
    file), which process owns the store, whether it was stopped cleanly, and which partitions cannot
    be opened, and which archives fail. For a broker it checks whether it answers, and how fast. It
    also checks how `cordwood serve` would be protected here: listeners that let everybody in,
    certificates that expire, secrets that others can read, users that may do nothing.

    \b
    Examples:
      cordwood doctor
      cordwood doctor --at /srv/data
    """
    from cordwood.cli.doctor.findings import show_findings

    target = _target(at)
    findings = list(_findings(target))
    if show_findings(findings, as_json=as_json):
        raise typer.Exit(1)


def _target(at: str | None) -> "Target | None":
    """The target given, else ./data if it exists, else none."""
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
    from cordwood.cli.doctor.store_check import check_store, read_contents

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
    paths = files.paths if files is not None else ()
    settings, about_settings = _configuration(paths)
    yield about_settings
    if settings is not None:
        from cordwood.cli.doctor.security_check import check_security

        yield from check_security(settings, paths)
    yield from about_broker
    if unreadable is not None:
        yield unreadable
    if target is None:
        yield _no_target()
    if files is None or contents is None:
        return
    for path in files.paths:
        yield from check_disk(path, free_bytes_min=_free_bytes_min(settings))
    yield from check_store(files, contents)


def _free_bytes_min(settings: "Settings | None") -> int:
    """The free space below which appends are refused."""
    from cordwood.log.store.upkeep_tasks import FREE_BYTES_MIN

    return FREE_BYTES_MIN if settings is None else settings.store.log_dir_free_bytes_min


def _configuration(paths: Sequence[str]) -> "tuple[Settings | None, Finding]":
    """The configuration that `cordwood serve` would have here, and a finding on it."""
    from cordwood.cli.doctor.findings import Finding, Verdict
    from cordwood.errors import ConfigError
    from cordwood.settings import DEFAULT_SOURCE, Assignment, load_settings

    area, name = "machine", "configuration"
    flags = [Assignment("log.dirs", list(paths), _AT)] if paths else []
    try:
        settings = load_settings(flags=flags)
    except (ConfigError, OSError) as error:
        return None, Finding(
            area=area,
            name=name,
            value=str(error),
            verdict=Verdict.PROBLEM,
            advice="`cordwood serve` would not start; fix this key",
        )
    changed = sum(each.source not in (DEFAULT_SOURCE, _AT) for each in settings.effective)
    value = "all defaults"
    if changed:
        value = f"{counted(changed, 'key')} set; see `cordwood config show --changed`"
    return settings, Finding(area=area, name=name, value=value)


def _unreadable(files: "DirectoryTarget", error: OSError) -> "Finding":
    from cordwood.cli.doctor.findings import Finding, Verdict

    return Finding(
        area=f"store {files}",
        name="contents",
        value=f"{error.filename}: {error.strerror}",
        verdict=Verdict.PROBLEM,
        advice="run as its owner, or allow others to read it",
    )


def _no_target() -> "Finding":
    from cordwood.cli.doctor.findings import Finding, Verdict

    return Finding(
        area="store",
        name="target",
        value="none given",
        verdict=Verdict.NOTE,
        advice=f"pass --at DIR or --at HOST:PORT, or set {AT_VARIABLE}, to check a store or broker",
    )
