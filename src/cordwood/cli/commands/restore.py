"""``cordwood restore``: topics from their archive, whole or as they were at a time."""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.at.target import AtOption, parse_target
from cordwood.cli.config_flags import ConfigOption, parse_config
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, output_for
from cordwood.cli.usage_error import UsageError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cordwood.cli.render import Columns

_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")

_COLUMNS: Final = (
    "topic",
    Column(name="partition", is_number=True),
    Column(name="start", is_number=True),
    Column(name="end", is_number=True),
    Column(name="records", show=shown_count, is_number=True),
    Column(name="segments", is_number=True),
)
_RESTORED_COLUMNS: Final = (*_COLUMNS, Column(name="bytes", show=shown_bytes, is_number=True))
_PLANNED_COLUMNS: Final = (
    *_COLUMNS,
    Column(name="left out", show=shown_count, is_number=True),
    Column(name="fetched", show=shown_bytes, is_number=True),
)


def restore(
    what: Annotated[
        list[str],
        typer.Argument(
            metavar="ARCHIVE|TOPIC",
            help="The archive's URL or directory, and topics of it: all where none is named.",
        ),
    ],
    *,
    at: AtOption = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="TIME",
            help="As it was then: 2026-11-16T09:30, -2h; else all that is archived.",
        ),
    ] = None,
    new_name: Annotated[
        str | None, typer.Option("--as", metavar="NAME", help="Under another name.")
    ] = None,
    config: ConfigOption = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would come back, and restore nothing.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Bring topics back from their archive: whole, or up to a point in time.

    Without an archive, a topic that is still there says by its archive.url where its own is; it
    comes back beside itself, under another name. With a time, each partition ends before its
    first batch that holds a newer record, and the topic has no archive.url until it is given
    one. A topic that is there is never written over.

    \b
    Examples:
      cordwood restore s3://bucket/prefix --at ./new-data
      cordwood restore file:///srv/archive orders --to 2026-11-16T09:30
      cordwood restore orders --to -2h --as orders-before --dry-run
    """
    from cordwood.cli.at.local_files import files_of
    from cordwood.cli.records.log_position import parse_time_ms
    from cordwood.clock import SystemClock
    from cordwood.format.file_names import check_topic_name

    to_ms = None if to is None else parse_time_ms(to, "--to", now_ms=SystemClock().now_ms())
    overrides = parse_config(config)
    if new_name is not None:
        check_topic_name(new_name)
    url, topics = _split(what)
    if url is None:
        url = _archive_of(at, topics, new_name)
    chosen, plans = _planned(url, topics, to_ms)
    if new_name is not None and len(chosen) != 1:
        raise UsageError(f"--as names one topic, and these are {len(chosen)}: name one")
    if dry_run:
        _show(_PLANNED_COLUMNS, plans, as_json=as_json)
        typer.secho("nothing was restored: leave out --dry-run to do so", err=True)
        return
    files = files_of(parse_target(at, may_be_new=True))
    _check_free(files.paths, [new_name or topic for topic in chosen])
    rows = [
        row
        for topic in chosen
        for row in _restored(
            files.paths, topic, url, to_ms=to_ms, new_name=new_name, config=overrides
        )
    ]
    _show(_RESTORED_COLUMNS, rows, as_json=as_json)


def _show(columns: "Columns", rows: list[dict[str, Any]], *, as_json: bool) -> None:
    output = output_for(as_json=as_json)
    if as_json:
        output.table((), rows)
        return
    output.table(
        columns,
        [
            {
                **row,
                "start": row["start_offset"],
                "end": row["end_offset"],
                "left out": row.get("left_out"),
                "fetched": row.get("fetched_bytes"),
            }
            for row in rows
        ],
    )


# --- which archive -----------------------------------------------------------------------------


def _split(what: "Sequence[str]") -> tuple[str | None, list[str]]:
    """The archive, where one is given, and the topics."""
    urls = [_as_url(text) for text in what]
    given = [url for url in urls if url is not None]
    if len(given) > 1:
        raise UsageError(f"one archive at a time, and these are {len(given)}: {', '.join(given)}")
    topics = [text for text, url in zip(what, urls, strict=True) if url is None]
    return (given[0] if given else None), list(dict.fromkeys(topics))


def _as_url(text: str) -> str | None:
    """The URL of an archive; None for what can only be a topic."""
    if _URL.match(text):
        return text
    if os.sep in text or os.path.isdir(text):
        return Path(text).absolute().as_uri()
    return None


def _archive_of(at: str | None, topics: "Sequence[str]", new_name: str | None) -> str:
    """Where a topic of this store is archived."""
    from cordwood.cli.at.opened_files import open_files
    from cordwood.errors import LogError

    if len(topics) != 1:
        raise UsageError("which archive? Give its URL before the topics, or one topic alone")
    [name] = topics
    with open_files(at, [name]) as store:
        url = store.topic(name).config.archive_url
    if url is None:
        raise LogError(f"topic {name} has no archive.url: give the URL of the archive")
    if new_name is None or new_name == name:
        raise UsageError(f"topic {name} is there: give --as another name, or delete it first")
    return url


# --- doing it ----------------------------------------------------------------------------------


def _planned(
    url: str, topics: "Sequence[str]", to_ms: int | None
) -> tuple[list[str], list[dict[str, Any]]]:
    """The topics of the archive, and what would come back of each."""
    from cordwood.archive.object_store import shown_url
    from cordwood.archive.opened_archive import open_archive
    from cordwood.errors import LogError

    rows: list[dict[str, Any]] = []
    with open_archive(url) as archive:
        there = archive.topics()
        for topic in topics:
            if topic not in there:
                known = ", ".join(there) or "none"
                raise LogError(f"no topic {topic} in {shown_url(url)}; there are: {known}")
        if not there:
            raise LogError(f"there are no topics in {shown_url(url)}: is it an archive?")
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
    """None of the topics is there; else `LogError`, before any is restored."""
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
            f"topic {there[0]} is there already: delete it first, or give --as another name"
        )


def _restored(
    paths: "Sequence[str]",
    topic: str,
    url: str,
    *,
    to_ms: int | None,
    new_name: str | None,
    config: dict[str, str],
) -> list[dict[str, Any]]:
    from cordwood.cli.at.owner_changes import ask_owner
    from cordwood.log.inbox.upkeep_change import RestoreTopic

    for path in paths:
        os.makedirs(path, exist_ok=True)
    change = RestoreTopic(
        topic=topic, url=url, to_timestamp_ms=to_ms, new_name=new_name, config=config
    )
    answer = ask_owner(paths, change, label=f"restoring {topic}")
    return [
        {
            "topic": answer.facts["topic"],
            "records": row["end_offset"] - row["start_offset"],
            **row,
        }
        for row in answer.facts["partitions"]
    ]
