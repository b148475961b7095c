"""Checks the archives of a store: whether each can be reached and written, and keeps up."""

from collections.abc import Iterator
from typing import Final

from cordwood.archive.archives_on_demand import ArchivesOnDemand
from cordwood.cli.at.target import DirectoryTarget
from cordwood.cli.doctor.findings import Finding, Verdict
from cordwood.cli.readable_values import counted, shown_bytes, shown_duration
from cordwood.clock import SystemClock
from cordwood.errors import ConfigError, CordwoodError
from cordwood.log.inspection.archiving_lag import overdue_ms
from cordwood.log.reading.archived_segments import ArchiveStatus
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.settings import load_settings
from cordwood.storage.files import RealFileSystem

_SHOWN_MAX: Final = 5
_LATE_MS: Final = 5 * 60_000  # ten passes of a store that is open


def check_archives(area: str, target: DirectoryTarget, *, is_held: bool) -> Iterator[Finding]:
    """Asks every archive. Nothing is found if no topic has one, or if the store is unreadable."""
    fs, clock = RealFileSystem(), SystemClock()
    archives = ArchivesOnDemand(fs, clock)
    try:
        with ReadOnlyStore(
            target.paths, fs=fs, clock=clock, defaults=_topic_defaults(), archives=archives
        ) as store:
            topics = [store.topic(name) for name in store.topics()]
            if any(topic.config.archive_url is not None for topic in topics):
                yield from _findings(area, store, is_held=is_held)
    except (CordwoodError, OSError):
        return  # the check of partitions reports it


def _topic_defaults() -> TopicConfig:
    try:
        return load_settings().topic_defaults
    except (ConfigError, OSError):
        return TopicConfig()  # the check of the configuration reports it


def _findings(area: str, store: ReadOnlyStore, *, is_held: bool) -> Iterator[Finding]:
    statuses = store.archive_status()
    failed = [f"{_name(status)}: {status.last_error}" for status in statuses if status.last_error]
    if failed:
        yield Finding(
            area=area,
            name="archive",
            value=_shortened(failed),
            verdict=Verdict.PROBLEM,
            advice="new segments are not archived, and local ones are kept; set another "
            "archive.url (`cordwood topics alter`), or take the archive over with "
            "`cordwood restore --take-over`",
        )
        return
    late = _late(store, statuses) if is_held else []
    if late:
        yield Finding(
            area=area,
            name="archive",
            value=f"behind: {_shortened(late)}",
            verdict=Verdict.WARNING,
            advice="`cordwood archive` archives all that is due and shows why it fails",
        )
        return
    size = shown_bytes(sum(status.size_bytes for status in statuses))
    yield Finding(area=area, name="archive", value=f"{counted(len(statuses), 'partition')}, {size}")


def _late(store: ReadOnlyStore, statuses: list[ArchiveStatus]) -> list[str]:
    now_ms = SystemClock().now_ms()
    found = []
    for status in statuses:
        topic = store.topic(status.topic)
        log = topic.partition(status.partition)
        late_ms = overdue_ms(log.view(), topic.config, log.archived_up_to, now_ms)
        if late_ms > _LATE_MS:
            found.append(
                f"{_name(status)} has a segment that has been due for {shown_duration(late_ms)}"
            )
    return found


def _name(status: ArchiveStatus) -> str:
    return f"{status.topic}-{status.partition}"


def _shortened(texts: list[str]) -> str:
    more = f"; and {len(texts) - _SHOWN_MAX} more" if len(texts) > _SHOWN_MAX else ""
    return "; ".join(texts[:_SHOWN_MAX]) + more
