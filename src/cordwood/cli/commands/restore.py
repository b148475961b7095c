"""``cordwood restore``: restores topics from an archive, completely or up to a time."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.failures import UsageError
from cordwood.cli.options import AtOption, ConfigOption, DryRunOption, JsonOption, parse_config
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import say

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")

_COLUMNS: Final = (
    Column(name="topic", is_whole=True),
    Column(name="partition", is_number=True),
    Column(name="start", field="start_offset", is_number=True),
    Column(name="end", field="end_offset", is_number=True),
    Column(name="records", show=shown_count, is_number=True),
    Column(name="segments", is_number=True),
)
_RESTORED_COLUMNS: Final = (*_COLUMNS, Column(name="bytes", show=shown_bytes, is_number=True))
_PLANNED_COLUMNS: Final = (
    *_COLUMNS,
    Column(name="left out", field="left_out", show=shown_count, is_number=True),
    Column(name="to fetch", field="fetched_bytes", show=shown_bytes, is_number=True),
)

WhatArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="ARCHIVE|TOPIC",
        help="URL or directory of the archive, then topics. Default: all topics in it.",
    ),
]
ToOption = Annotated[
    str | None,
    typer.Option(
        "--to",
        metavar="TIME",
        help="Restore up to this time: 2026-11-16T09:30, -2h (ago). Default: everything.",
    ),
]
NewNameOption = Annotated[
    str | None, typer.Option("--as", metavar="NAME", help="Restore the topic under this name.")
]
TakeOverOption = Annotated[
    bool,
    typer.Option(
        "--take-over",
        help="Continue the archive in this store. The store that owns it now stops archiving.",
    ),
]


def restore(
    what: WhatArgument,
    *,
    at: AtOption = None,
    to: ToOption = None,
    new_name: NewNameOption = None,
    config: ConfigOption = None,
    take_over: TakeOverOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Restore topics from an archive, completely or up to a point in time.

    The restored topic is a copy: it has no archive.url until you set one, and the archive stays
    with the store that writes it. If that store is lost, pass --take-over: then this store
    continues the archive. Existing topics are never overwritten.

    Without an archive, name one existing topic: it is restored from its own archive.url under
    another name (--as). With --to, each partition ends before the first batch with a newer
    record.

    \b
    Examples:
      cordwood restore s3://bucket/prefix --at ./new-data --take-over
      cordwood restore file:///srv/archive orders --to 2026-11-16T09:30
      cordwood restore orders --to -2h --as orders-before --dry-run
    """
    from cordwood.cli.at.access import files_of
    from cordwood.cli.at.owner_changes import ask_owner
    from cordwood.cli.records.log_position import parse_time_ms
    from cordwood.clock import SystemClock
    from cordwood.format.file_names import check_topic_name
    from cordwood.log.inbox.upkeep_change import RestoreTopic

    to_ms = None if to is None else parse_time_ms(to, "--to", now_ms=SystemClock().now_ms())
    overrides = parse_config(config)
    if take_over and (to_ms is not None or new_name is not None):
        raise UsageError(
            "--take-over continues the archive of the whole topic; leave out --to and --as"
        )
    if new_name is not None:
        check_topic_name(new_name)
    url, topics = _split(what)
    if url is None:
        url = _archive_of(at, topics, new_name)
    chosen, plans = _planned(url, topics, to_ms)
    if new_name is not None and len(chosen) != 1:
        raise UsageError(f"--as renames one topic, but {len(chosen)} are restored; name one topic")
    if dry_run:
        output_for(as_json=as_json).table(_PLANNED_COLUMNS, plans)
        say("dry run: nothing was restored")
        return
    files = files_of(parse_target(at, may_be_new=True))
    _check_free(files.paths, [new_name or topic for topic in chosen])
    for path in files.paths:
        os.makedirs(path, exist_ok=True)
    rows: list[Row] = []
    copies: list[str] = []
    for topic in chosen:
        change = RestoreTopic(
            topic=topic,
            url=url,
            to_timestamp_ms=to_ms,
            new_name=new_name,
            config=overrides,
            take_over=take_over,
        )
        facts = ask_owner(files.paths, change, label=f"restoring {topic}").facts
        rows += _restored_rows(facts)
        if not facts["is_archived"]:
            copies.append(facts["topic"])
    output_for(as_json=as_json).table(_RESTORED_COLUMNS, rows)
    if copies:
        say(
            f"{', '.join(copies)}: restored as a copy without an archive.url; set one with "
            "`cordwood topics alter TOPIC --config archive.url=URL`"
        )


# --- which archive -----------------------------------------------------------------------------


def _split(what: "Sequence[str]") -> tuple[str | None, list[str]]:
    """The URL of the archive, or None, and the names of the topics."""
    urls = [_as_url(text) for text in what]
    given = [url for url in urls if url is not None]
    if len(given) > 1:
        raise UsageError(f"restore from one archive at a time, not {', '.join(given)}")
    topics = [text for text, url in zip(what, urls, strict=True) if url is None]
    return (given[0] if given else None), list(dict.fromkeys(topics))


def _as_url(text: str) -> str | None:
    """The URL of an archive; None if `text` is the name of a topic."""
    if _URL.match(text):
        return text
    if os.sep in text or os.path.isdir(text):
        return Path(text).absolute().as_uri()
    return None


def _archive_of(at: str | None, topics: "Sequence[str]", new_name: str | None) -> str:
    """The archive.url of a topic of this store."""
    from cordwood.cli.at.access import open_files
    from cordwood.errors import LogError

    if len(topics) != 1:
        raise UsageError("no archive given; pass its URL before the topics, or a single topic")
    [name] = topics
    with open_files(at, [name]) as store:
        url = store.topic(name).config.archive_url
    if url is None:
        raise LogError(f"topic {name} has no archive.url; pass the URL of the archive")
    if new_name is None or new_name == name:
        raise UsageError(f"topic {name} exists; pass another name with --as, or delete it first")
    return url


# --- planning and restoring --------------------------------------------------------------------


def _planned(url: str, topics: "Sequence[str]", to_ms: int | None) -> tuple[list[str], list[Row]]:
    """The topics to restore, and what would be restored of each partition."""
    from cordwood.archive.objects.object_store import shown_url
    from cordwood.archive.opened_archive import open_archive
    from cordwood.errors import LogError

    rows: list[Row] = []
    with open_archive(url) as archive:
        there = archive.topics()
        for topic in topics:
            if topic not in there:
                known = ", ".join(there) or "none"
                raise LogError(f"no topic {topic} in {shown_url(url)}; topics in it: {known}")
        if not there:
            raise LogError(f"no topics in {shown_url(url)}; check that it is an archive")
        chosen = list(topics) or there
        for topic in chosen:
            for part in archive.explain_restore(topic, to_timestamp_ms=to_ms):
                rows.append(
                    {
                        "topic": topic,
                        "partition": part.partition,
                        "start_offset": part.start_offset,
                        "end_offset": part.end_offset,
                        "records": part.end_offset - part.start_offset,
                        "segments": part.segments,
                        "left_out": part.archived_end - part.end_offset,
                        "fetched_bytes": part.fetched_bytes,
                    }
                )
    return chosen, rows


def _check_free(paths: "Sequence[str]", names: "Sequence[str]") -> None:
    """Raise `LogError` if one of the topics exists, before any is restored."""
    from cordwood.clock import SystemClock
    from cordwood.errors import LogError
    from cordwood.log.rules.topic_config import TopicConfig
    from cordwood.log.store.read_only_store import ReadOnlyStore
    from cordwood.storage.files import RealFileSystem

    if not all(os.path.isdir(path) for path in paths):
        return
    with ReadOnlyStore(
        paths,
        fs=RealFileSystem(),
        clock=SystemClock(),
        defaults=TopicConfig(),
        wants=lambda topic, number: topic in names,
    ) as store:
        there = store.topics(include_internal=True)
    if there:
        raise LogError(
            f"topic {there[0]} already exists; delete it first, or pass another name with --as"
        )


def _restored_rows(facts: "Mapping[str, Any]") -> list[Row]:
    return [
        {
            "topic": facts["topic"],
            "records": row["end_offset"] - row["start_offset"],
            **row,
        }
        for row in facts["partitions"]
    ]
