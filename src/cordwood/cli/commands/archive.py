"""``cordwood archive``: copies segments that are due into the archives, and shows progress."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.completion import complete_topic
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, Row, output_for

if TYPE_CHECKING:
    from cordwood.log.store.read_only_store import ReadOnlyStore

_COLUMNS: Final = (
    Column(name="topic", is_whole=True),
    Column(name="partition", is_number=True),
    Column(name="archived", field="archived_up_to", is_number=True),
    Column(name="end", field="end_offset", is_number=True),
    Column(name="bytes", show=shown_bytes, is_number=True),
    Column(name="lag", field="lag_records", show=shown_count, is_number=True),
    Column(name="lag bytes", field="lag_bytes", show=shown_bytes, is_number=True),
)
_COPIED: Final = Column(name="copied", field="copied_bytes", show=shown_bytes, is_number=True)


def archive(
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC",
            autocompletion=complete_topic,
            help="Topic names. Default: all topics with an archive.url.",
        ),
    ] = None,
    *,
    at: AtOption = None,
    status: Annotated[
        bool, typer.Option("--status", help="Only show progress; copy nothing.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Archive all segments that are due now, and show the progress of each partition.

    A segment is due once it is sealed and archive.after.ms have passed; "cordwood roll" seals
    active segments. "archived" and "end" are offsets. "lag" counts the records, and "lag bytes"
    the bytes, that are only on the local disk. Exit code 1 if copying failed.

    \b
    Examples:
      cordwood archive
      cordwood archive orders --status
    """
    from cordwood.cli.at.access import open_files
    from cordwood.cli.at.owner_changes import ask_owner
    from cordwood.log.inbox.upkeep_change import ArchiveTopics

    names = list(dict.fromkeys(topic or ()))
    with open_files(at, names) as store:
        chosen = _archived_topics(store, names)
        paths = store.data_dirs
        rows = _status_rows(store, chosen) if status else []
    if not status:
        change = ArchiveTopics(topics=tuple(names) or None)
        rows = ask_owner(paths, change, label="archiving").facts["partitions"]
    has_failed = any(row["last_error"] for row in rows)
    columns: list[str | Column] = [*_COLUMNS] if status else [*_COLUMNS, _COPIED]
    if has_failed:
        columns.append("last_error")
    output_for(as_json=as_json).table(columns, rows)
    if has_failed:
        raise typer.Exit(1)


def _archived_topics(store: "ReadOnlyStore", names: list[str]) -> list[str]:
    """The named topics, or all that have an archive; `LogError` if one has none."""
    from cordwood.errors import LogError

    for name in names:
        if store.topic(name).config.archive_url is None:
            raise LogError(
                f"topic {name} has no archive; set one with "
                f"`cordwood topics alter {name} --config archive.url=URL`"
            )
    chosen = names or [n for n in store.topics() if store.topic(n).config.archive_url is not None]
    if not chosen:
        raise LogError(
            "no topic has an archive; set one with "
            "`cordwood topics alter TOPIC --config archive.url=URL`"
        )
    return chosen


def _status_rows(store: "ReadOnlyStore", names: list[str]) -> list[Row]:
    """Progress by the files alone; only the store's owner knows what it copied since its start."""
    from cordwood.log.inspection.archiving_lag import archive_row

    rows = []
    for status in store.archive_status():
        if status.topic in names:
            log = store.topic(status.topic).partition(status.partition)
            row = archive_row(status, log.view(), log.archived_up_to)
            for unknown in ("copied_segments", "copied_bytes", "last_success_ms"):
                del row[unknown]
            rows.append(row)
    return rows
