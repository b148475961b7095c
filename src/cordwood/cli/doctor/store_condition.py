"""A store by its files: who holds it, how it was left, what cannot be read, what lies about."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from cordwood.cli.at.target import DirectoryTarget
from cordwood.cli.doctor.health_finding import Finding, Verdict
from cordwood.cli.readable_values import shown_bytes
from cordwood.errors import CordwoodError, FormatError
from cordwood.format.file_names import (
    CLEAN_SHUTDOWN,
    META_PROPERTIES,
    DirectoryState,
    FileKind,
    parse_directory_name,
    parse_segment_file_name,
)
from cordwood.storage.directory_lock import LockOwner, lock_owner
from cordwood.storage.handle_cache import OPEN_SEGMENTS_MAX

_FILES_PER_ACTIVE: Final = 4  # log, two indexes, the mapped mark
_FILES_PER_SEALED: Final = 3
_FILES_BESIDES: Final = 64  # the process itself: libraries, locks, pipes, listeners
_SHOWN_MAX: Final = 5


@dataclass(slots=True)
class StoreContents:
    """What the directories of a store hold, counted by names."""

    partitions: int = 0
    segments: int = 0
    size_bytes: int = 0
    leftovers: Counter[str] = field(default_factory=Counter)

    @property
    def files_needed(self) -> int:
        """How many files its owner may hold open at once."""
        sealed = min(max(self.segments - self.partitions, 0), OPEN_SEGMENTS_MAX)
        active = self.partitions * _FILES_PER_ACTIVE
        return active + sealed * _FILES_PER_SEALED + _FILES_BESIDES


def read_contents(paths: Sequence[str]) -> StoreContents:
    """Look through the directories. What vanishes meanwhile was on its way out."""
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
        return  # it is named by the check of what can be read


def check_store(target: DirectoryTarget, contents: StoreContents) -> Iterator[Finding]:
    """Everything about the store but its disks."""
    area = f"store {target}"
    if not contents.partitions and not any(
        os.path.exists(os.path.join(path, META_PROPERTIES)) for path in target.paths
    ):
        yield Finding(area=area, name="contents", value="no store yet: the first append makes one")
        return
    yield Finding(
        area=area,
        name="contents",
        value=f"{contents.partitions:,} partitions, {contents.segments:,} segments, "
        f"{shown_bytes(contents.size_bytes)}",
    )
    owners = {path: lock_owner(path) for path in target.paths}
    yield from _owner_findings(area, owners)
    is_held = any(owner is not None for owner in owners.values())
    yield leftover_finding(area, contents.leftovers, is_held=is_held)
    yield _readable(area, target)


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
            value="nobody; stopped in order" if has_marker else "nobody; not stopped in order",
            verdict=Verdict.OK if has_marker else Verdict.NOTE,
            advice=""
            if has_marker
            else "nothing to do: whoever opens it next checks the ends of its logs first",
        )


def described_owner(owner: LockOwner) -> str:
    """With the command that runs there, where the system tells."""
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
    """Files and directories that are on their way in or out."""
    if not leftovers:
        return Finding(area=area, name="leftovers", value="none")
    value = ", ".join(f"{count} *{suffix}" for suffix, count in sorted(leftovers.items()))
    foreign = {"-stray", "-future"} & set(leftovers)
    if foreign:
        advice = "Kafka put stray and future directories aside: move them away if you know why"
        return Finding(
            area=area, name="leftovers", value=value, verdict=Verdict.NOTE, advice=advice
        )
    if is_held:
        return Finding(area=area, name="leftovers", value=f"{value}, the writer removes them")
    return Finding(
        area=area,
        name="leftovers",
        value=value,
        verdict=Verdict.NOTE,
        advice="nothing to do: whoever opens it next finishes or removes what was under way",
    )


def _readable(area: str, target: DirectoryTarget) -> Finding:
    """Whether each partition opens. Records are not read: that is what `cordwood verify` does."""
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
            advice=f"`cordwood verify --at {target}` tells more",
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
            advice=f"the other partitions can be used; `cordwood verify --at {target}` tells more",
        )
    count = sum(len(topic.partitions) for topic in topics)
    return Finding(
        area=area,
        name="partitions",
        value=f"all {count} open; `cordwood verify` checks every record",
    )
