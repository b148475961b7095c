"""``cordwood archive``: copying what is due into the archives, and how far they are."""

from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from cordwood.cli.at.target import AtOption
from cordwood.cli.completion_names import complete_topic
from cordwood.cli.readable_values import shown_bytes, shown_count
from cordwood.cli.render import Column, output_for

if TYPE_CHECKING:
    from cordwood.log.store.read_only_store import ReadOnlyStore

_COLUMNS: Final = (
    "topic",
    Column(name="partition", is_number=True),
    Column(name="archived", is_number=True),
    Column(name="end", is_number=True),
    Column(name="bytes", show=shown_bytes, is_number=True),
    Column(name="lag", show=shown_count, is_number=True),
    Column(name="lag bytes", show=shown_bytes, is_number=True),
)
_COPIED: Final = Column(name="copied", show=shown_bytes, is_number=True)


def archive(
    topic: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="TOPIC", autocompletion=complete_topic, help="All that have an archive.url."
        ),
    ] = None,
    *,
    at: AtOption = None,
    status: Annotated[
        bool, typer.Option("--status", help="Only look how far the archives are.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line.")] = False,
) -> None:
    """Copy what is due of the topics into their archives now, and show how far each is.

    A segment is due once it is sealed and archive.after.ms have passed: "cordwood roll" seals what
    is still written to. "archived" and "end" are offsets; "lag" is records, and bytes, that only
    the local disk has. Exit code 1 where copying failed.

    \b
    Examples:
      cordwood archive
      cordwood archive orders --status
    """
    from cordwood.cli.at.opened_files import open_files
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
    _show(rows, as_json=as_json, is_status=status)
    if any(row["last_error"] for row in rows):
        raise typer.Exit(1)


def _show(rows: list[dict[str, Any]], *, as_json: bool, is_status: bool) -> None:
    output = output_for(as_json=as_json)
    if as_json:
        output.table((), rows)
        return
    columns: list[str | Column] = [*_COLUMNS] if is_status else [*_COLUMNS, _COPIED]
    if any(row["last_error"] for row in rows):
        columns.append("last_error")
    output.table(
        columns,
        [
            {
                **row,
                "archived": row["archived_up_to"],
                "end": row["end_offset"],
                "lag": row["lag_records"],
                "lag bytes": row["lag_bytes"],
                "copied": row.get("copied_bytes"),
            }
            for row in rows
        ],
    )


def _archived_topics(store: "ReadOnlyStore", names: list[str]) -> list[str]:
    """Those that were asked for, or all that have an archive; `LogError` where one has none."""
    from cordwood.errors import LogError

    for name in names:
        if store.topic(name).config.archive_url is None:
            raise LogError(
                f"topic {name} has no archive: set one with "
                f"cordwood topics alter {name} --config archive.url=URL"
            )
    chosen = names or [n for n in store.topics() if store.topic(n).config.archive_url is not None]
    if not chosen:
        raise LogError(
            "no topic here has an archive: set one with "
            "cordwood topics alter TOPIC --config archive.url=URL"
        )
    return chosen


def _status_rows(store: "ReadOnlyStore", names: list[str]) -> list[dict[str, Any]]:
    """As far as the files say; what its owner copied since it started only the owner knows."""
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
