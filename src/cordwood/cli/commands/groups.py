"""``cordwood groups``: lists, describes, resets and deletes consumer groups."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.completion import complete_topic
from cordwood.cli.options import AtOption, GroupArgument, GroupsArgument, JsonOption, YesOption
from cordwood.cli.readable_values import counted, shown_count
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import require_confirmation, say, warn

if TYPE_CHECKING:
    from cordwood.cli.at.backend import Backend, GroupFacts, Place
    from cordwood.cli.records.log_position import LogPosition

groups_app = typer.Typer(
    help="List, describe, reset and delete consumer groups.", no_args_is_help=True
)

_LIST_COLUMNS: Final = (
    Column(name="group", is_whole=True),
    "state",
    Column(name="members", is_number=True),
    "topics",
    Column(name="lag", show=shown_count, is_number=True),
)
_GROUP_COLUMNS: Final = ("group", "state", "type", "assignor", Column(name="lag", show=shown_count))
_PLACE_COLUMNS: Final = (
    Column(name="topic", is_whole=True),
    Column(name="partition", is_number=True),
    Column(name="committed", is_number=True),
    Column(name="end_offset", is_number=True),
    Column(name="lag", show=shown_count, is_number=True),
    "client",
)
_MEMBER_COLUMNS: Final = ("member", "client", "host", "partitions")
_RESET_COLUMNS: Final = (
    Column(name="topic", is_whole=True),
    Column(name="partition", is_number=True),
    Column(name="committed", is_number=True),
    Column(name="new_offset", is_number=True),
    Column(name="lag", show=shown_count, is_number=True),
)


@groups_app.callback()
def groups() -> None:
    """List, describe, reset and delete consumer groups."""


def _opened(at: str | None) -> "Backend":
    from cordwood.cli.at.access import open_backend

    return open_backend(parse_target(at))


# --- looking ----------------------------------------------------------------------------------


@groups_app.command("list")
def list_groups(*, at: AtOption = None, as_json: JsonOption = False) -> None:
    """List the groups with their topics and lag.

    State and members are known only to a broker, not from a data directory.

    \b
    Examples:
      cordwood groups list --at localhost:9092
    """
    with _opened(at) as backend:
        found = backend.groups()
    rows = [
        {
            "group": group.name,
            "type": group.kind,
            "state": group.state,
            "members": None if group.members is None else len(group.members),
            "topics": sorted({place.topic for place in group.committed}),
            "lag": group.lag,
        }
        for group in found
    ]
    output_for(as_json=as_json).table(_LIST_COLUMNS, rows)
    if not rows and not as_json:
        say("no group has committed offsets yet")


@groups_app.command("describe")
def describe_group(
    group: GroupArgument, *, at: AtOption = None, as_json: JsonOption = False
) -> None:
    """Describe a group: committed offsets, lag, and members.

    \b
    Examples:
      cordwood groups describe billing
      cordwood groups describe billing --at localhost:9092 --json
    """
    with _opened(at) as backend:
        facts = _known(backend, group)
    row: Row = {
        "group": facts.name,
        "state": facts.state,
        "type": facts.kind,
        "assignor": facts.assignor,
        "lag": facts.lag,
    }
    places = _place_rows(facts)
    members = [
        {
            "member": member.member_id,
            "client": member.client_id,
            "host": member.host,
            "partitions": [f"{topic}:{number}" for topic, number in member.partitions],
        }
        for member in facts.members or ()
    ]
    output = output_for(as_json=as_json)
    if as_json:
        known: Row = {"members": None if facts.members is None else members}
        output.facts((), row | {"partitions": places} | known)
        return
    output.facts(_GROUP_COLUMNS, row)
    typer.echo()
    output.table(_PLACE_COLUMNS, places)
    if members:
        typer.echo()
        output.table(_MEMBER_COLUMNS, members)


def _known(backend: "Backend", name: str) -> "GroupFacts":
    from cordwood.errors import LogError

    facts = backend.group(name)
    if facts is None:
        raise LogError(f"unknown group {name!r}: it has no members and no committed offsets")
    return facts


def _place_rows(facts: "GroupFacts") -> list[Row]:
    """Partitions with a committed offset, and those that members read without one yet."""
    readers = {
        place: member.client_id for member in facts.members or () for place in member.partitions
    }
    rows: dict[Place, Row] = {
        place: {
            "topic": place[0],
            "partition": place[1],
            "committed": None,
            "start_offset": None,
            "end_offset": None,
            "lag": None,
            "metadata": "",
            "client": client,
        }
        for place, client in readers.items()
    }
    for found in facts.committed:
        place = (found.topic, found.partition)
        rows[place] = {
            "topic": found.topic,
            "partition": found.partition,
            "committed": found.offset,
            "start_offset": found.start_offset,
            "end_offset": found.end_offset,
            "lag": found.lag,
            "metadata": found.metadata,
            "client": readers.get(place),
        }
    return [rows[place] for place in sorted(rows)]


# --- changing ---------------------------------------------------------------------------------


@groups_app.command("reset")
def reset_group(
    group: GroupArgument,
    *,
    to: Annotated[
        str,
        typer.Option(
            "--to",
            metavar="POSITION",
            help="New position: earliest, latest, an offset, -10 (records before the end), "
            "-1h (ago), or a time.",
        ),
    ],
    at: AtOption = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="TOPIC[:PARTITION]",
            autocompletion=complete_topic,
            help="Only this topic or partition; repeatable. Default: all committed offsets.",
        ),
    ] = None,
    execute: Annotated[
        bool, typer.Option("--execute/--dry-run", help="Commit the new offsets, or only show them.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Move a group to another position. Without --execute, only show the new offsets.

    The group must have no members.

    \b
    Examples:
      cordwood groups reset billing --to earliest
      cordwood groups reset billing --to -1h --topic orders:0 --execute
    """
    from cordwood.cli.records.log_position import parse_position
    from cordwood.clock import SystemClock

    position = parse_position(to, "--to", now_ms=SystemClock().now_ms())
    with _opened(at) as backend:
        facts = backend.group(group)
        committed = {} if facts is None else {(c.topic, c.partition): c for c in facts.committed}
        wanted = _reset_places(backend, group, topic, committed)
        rows = [row for name, ps in wanted.items() for row in _plan(backend, name, ps, position)]
        for row in rows:
            known = committed.get((row["topic"], row["partition"]))
            row["committed"] = None if known is None else known.offset
        if execute:
            _check_empty(facts)
            offsets = {(row["topic"], row["partition"]): row["new_offset"] for row in rows}
            backend.commit(group, offsets)
    output_for(as_json=as_json).table(_RESET_COLUMNS, rows)
    if not execute:
        say("dry run: nothing was changed; add --execute to commit the new offsets")


def _reset_places(
    backend: "Backend", group: str, texts: list[str] | None, committed: "Mapping[Place, object]"
) -> dict[str, list[int] | None]:
    """The partitions to move, by topic; None means all partitions of the topic."""
    from cordwood.errors import LogError

    if texts:
        return _parse_places(texts)
    found: dict[str, list[int] | None] = {}
    names = set(backend.topic_names(include_internal=True))
    for topic, number in committed:
        if topic in names:
            found[topic] = [*(found.get(topic) or []), number]
    if not found:
        raise LogError(
            f"group {group!r} has no committed offsets to move; name topics with --topic"
        )
    return found


def _parse_places(texts: list[str]) -> dict[str, list[int] | None]:
    from cordwood.errors import ConfigError

    found: dict[str, list[int] | None] = {}
    for text in texts:
        name, colon, numbers = text.partition(":")
        if not colon:
            found[name] = None
            continue
        try:
            partitions = [int(number) for number in numbers.split(",")]
        except ValueError:
            raise ConfigError("--topic", text, "must be TOPIC, TOPIC:0 or TOPIC:0,1") from None
        if name in found and found[name] is None:
            continue
        found[name] = sorted({*(found.get(name) or []), *partitions})
    return found


def _plan(
    backend: "Backend", topic: str, partitions: list[int] | None, position: "LogPosition"
) -> list[Row]:
    from cordwood.cli.records.record_stream import resolve_position

    reader = backend.reader(topic, partitions)
    extents = reader.extents()
    offsets = resolve_position(reader, position, extents, warn)
    return [
        {
            "topic": topic,
            "partition": number,
            "new_offset": offset,
            "lag": extents[number].end - offset,
        }
        for number, offset in sorted(offsets.items())
    ]


def _check_empty(facts: "GroupFacts | None") -> None:
    from cordwood.errors import LogError

    if facts is not None and facts.members:
        clients = ", ".join(sorted({member.client_id for member in facts.members}))
        raise LogError(
            f"group {facts.name} has {counted(len(facts.members), 'active member')} ({clients}); "
            "stop its members first; nothing was changed"
        )


@groups_app.command("delete")
def delete_groups(
    group: GroupsArgument,
    *,
    at: AtOption = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete groups and their committed offsets; topics and records stay.

    \b
    Examples:
      cordwood groups delete billing
    """
    with _opened(at) as backend:
        found = [_known(backend, name) for name in group]  # all exist, or none is deleted
        for facts in found:
            _check_empty(facts)
            places = len(facts.committed)
            offsets = counted(places, "committed offset")
            question = f"delete group {facts.name} with {offsets}?"
            require_confirmation(question, is_given=yes)
            backend.delete_group(facts.name)
            if as_json:
                output_for(as_json=True).facts((), {"group": facts.name, "partitions": places})
            else:
                say(f"deleted group {facts.name}")
