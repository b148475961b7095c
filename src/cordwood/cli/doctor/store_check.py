"""Checks a store by its files: its owner, a clean stop, leftovers, unreadable partitions."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from cordwood.cli.at.target import DirectoryTarget
from cordwood.cli.doctor.archive_check import check_archives
from cordwood.cli.doctor.findings import Finding, Verdict
from cordwood.cli.readable_values import counted, shown_bytes
from cordwood.errors import CordwoodError, FormatError
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    DirectoryState,
    FileKind,
    parse_directory_name,
    parse_segment_file_name,
)
from cordwood.storage.disk.directory_lock import LockOwner, lock_owner
from cordwood.storage.segment_parts.handle_cache import OPEN_SEGMENTS_MAX
from cordwood.value_class import dataclass, field

_FILES_PER_ACTIVE: Final = 4  # log, two indexes, the mapped mark
_FILES_PER_SEALED: Final = 3
_FILES_OF_PROCESS: Final = 64  # libraries, locks, pipes, listeners
_SHOWN_MAX: Final = 5


@dataclass(slots=True)
class StoreContents:
    """The contents of a store's directories, counted by file names."""

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    leftovers: Counter[str] = field(default_factory=Counter)

    @property
    def files_needed(self) -> int:
        """How many files the owner of the store may hold open at once."""
        sealed = min(max(self.segments - self.partitions, 0), OPEN_SEGMENTS_MAX)
        active = self.partitions * _FILES_PER_ACTIVE
        return active + sealed * _FILES_PER_SEALED + _FILES_OF_PROCESS


def read_contents(paths: Sequence[str]) -> StoreContents:
    """Count the contents of the directories; files deleted meanwhile are skipped."""
    contents = StoreContents()
    for path in paths:
        for entry in os.scandir(path):
            if not entry.is_dir(follow_symlinks=True):
                continue
            try:
                parsed = parse_directory_name(entry.name)
            except FormatError:
                continue
            if parsed.state is not DirectoryState.LIVE:
                contents.leftovers[f"-{parsed.state.value}"] += 1
                continue
            contents.partitions += 1
            _count_segments(entry.path, contents)
    return contents


def _count_segments(directory: str, contents: StoreContents) -> None:
    try:
        with os.scandir(directory) as entries:
            for entry in entries:
                parsed = parse_segment_file_name(entry.name)
                if parsed is None:
                    continue
                if parsed.suffix:
                    contents.leftovers[parsed.suffix] += 1
                elif parsed.kind is FileKind.LOG:
                    contents.segments += 1
                    contents.size_bytes += entry.stat().st_size
    except OSError:
        return  # the check of readable partitions reports it


def check_store(target: DirectoryTarget, contents: StoreContents) -> Iterator[Finding]:
    """All findings on the store except its disks."""
    area = f"store {target}"
    if not contents.partitions and not any(
        os.path.exists(os.path.join(path, META_PROPERTIES)) for path in target.paths
    ):
        yield Finding(
            area=area, name="contents", value="no store; `cordwood topics create` creates one"
        )
        return
    yield Finding(
        area=area,
        name="contents",
        value=f"{counted(contents.partitions, 'partition')}, "
        f"{counted(contents.segments, 'segment')}, {shown_bytes(contents.size_bytes)}",
    )
    owners = {path: lock_owner(path) for path in target.paths}
    yield from _owner_findings(area, owners)
    is_held = any(owner is not None for owner in owners.values())
    yield leftover_finding(area, contents.leftovers, is_held=is_held)
    yield _readable(area, target)
    yield from check_archives(area, target, is_held=is_held)


def _owner_findings(area: str, owners: dict[str, LockOwner | None]) -> Iterator[Finding]:
    for path, owner in owners.items():
        name = "writer" if len(owners) == 1 else f"writer of {path}"
        if owner is not None:
            yield Finding(area=area, name=name, value=f"held by {described_owner(owner)}")
            continue
        has_marker = os.path.exists(os.path.join(path, CLEAN_SHUTDOWN))
        yield Finding(
            area=area,
            name=name,
            value="none; stopped cleanly" if has_marker else "none; not stopped cleanly",
            verdict=Verdict.OK if has_marker else Verdict.NOTE,
            advice="" if has_marker else "nothing to do: the next start recovers the logs",
        )


def described_owner(owner: LockOwner) -> str:
    """The owner, with its command line if the system shows it."""
    if owner.pid is None:
        return owner.description
    try:
        with open(f"/proc/{owner.pid}/cmdline", "rb") as file:
            words = file.read(400).replace(b"\0", b" ").decode("utf-8", "replace").strip()
    except OSError:
        return owner.description
    shown = words if words.isprintable() else ""
    return f"{owner.description}: {shown}" if shown else owner.description


def leftover_finding(area: str, leftovers: Counter[str], *, is_held: bool) -> Finding:
    """Files and directories that are being added or deleted."""
    if not leftovers:
        return Finding(area=area, name="leftovers", value="none")
    value = ", ".join(f"{count} *{suffix}" for suffix, count in sorted(leftovers.items()))
    foreign = {"-stray", "-future"} & set(leftovers)
    if foreign:
        advice = "Kafka leaves stray and future directories; remove them if you know their origin"
        return Finding(
            area=area, name="leftovers", value=value, verdict=Verdict.NOTE, advice=advice
        )
    if is_held:
        return Finding(area=area, name="leftovers", value=f"{value}; the writer removes them")
    return Finding(
        area=area,
        name="leftovers",
        value=value,
        verdict=Verdict.NOTE,
        advice="nothing to do: the next start completes or removes them",
    )


def _readable(area: str, target: DirectoryTarget) -> Finding:
    """Whether each partition can be opened. `cordwood verify` reads the records."""
    from cordwood.cli.at.directory_backend import DirectoryBackend

    try:
        with DirectoryBackend(target) as backend:
            topics = backend.topics(include_internal=True)
    except (CordwoodError, OSError) as error:
        return Finding(
            area=area,
            name="partitions",
            value=str(error),
            verdict=Verdict.PROBLEM,
            advice=f"run `cordwood verify --at {target}` for details",
        )
    bad = [
        f"{topic.name}-{partition.partition}: {partition.problem}"
        for topic in topics
        for partition in topic.partitions
        if partition.problem
    ]
    if bad:
        more = f"; and {len(bad) - _SHOWN_MAX} more" if len(bad) > _SHOWN_MAX else ""
        return Finding(
            area=area,
            name="partitions",
            value="; ".join(bad[:_SHOWN_MAX]) + more,
            verdict=Verdict.PROBLEM,
            advice="the other partitions can be used; "
            f"run `cordwood verify --at {target}` for details",
        )
    count = sum(len(topic.partitions) for topic in topics)
    return Finding(
        area=area,
        name="partitions",
        value=f"all {count} can be opened; `cordwood verify` checks every record",
    )
