"""``cordwood find``: the newest record of a key, or all of them."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.at.target import AtOption, parse_target
from cordwood.cli.completion_names import TopicArgument, partitions_option
from cordwood.cli.records.record_format import FORMAT_HELP

if TYPE_CHECKING:
    from cordwood.cli.at.backend import TopicReader
    from cordwood.cli.at.target import Target
    from cordwood.cli.records.record_format import Formatter
    from cordwood.format.record import Record


def find(
    topic: TopicArgument,
    key: Annotated[str, typer.Argument(metavar="KEY", help="As text, or 0x and hex digits.")],
    *,
    at: AtOption = None,
    history: Annotated[
        bool, typer.Option("--history", help="Every record of the key, oldest first.")
    ] = False,
    partition: Annotated[list[int] | None, partitions_option("Only look here; repeatable.")] = None,
    record_format: Annotated[
        str | None, typer.Option("--format", metavar="FORMAT", help=FORMAT_HELP)
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="A JSON object for each record, one per line.")
    ] = False,
) -> None:
    """Show the newest record of a key. Exit code 1 where there is none.

    The partition that the key hashes to is looked through first, and the others only if it is
    not there. Topics with key.index=true are asked through their indexes, others are read. A
    broker on this machine is asked through its files.

    \b
    Examples:
      cordwood find accounts user:42
      cordwood find accounts user:42 --history --json
    """
    from cordwood.cli.at.opened_backend import open_backend

    wanted = _parse_key(key)
    formatter = _formatter(topic, record_format, as_json=as_json)
    with open_backend(_nearest(parse_target(at))) as backend:
        reader = backend.reader(topic, partition)
        found = 0
        for number, record in (_history if history else _newest)(reader, wanted):
            sys.stdout.buffer.write(formatter(number, record))
            found += 1
        sys.stdout.buffer.flush()
    if not found:
        typer.secho(f"cordwood: no record of {topic} has the key {key}", err=True)
        raise typer.Exit(1)


def _nearest(target: "Target") -> "Target":
    """The files of a broker where they are at hand: it cannot be asked for a key, they can."""
    from cordwood.cli.at.local_files import local_files_of
    from cordwood.cli.at.target import BrokerTarget

    return (local_files_of(target) or target) if isinstance(target, BrokerTarget) else target


def _parse_key(text: str) -> bytes:
    from cordwood.errors import ConfigError

    if not text.lower().startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text[2:])
    except ValueError as error:
        raise ConfigError("KEY", text, f"must have hex digits behind 0x: {error}") from error


def _formatter(topic: str, text: str | None, *, as_json: bool) -> "Formatter":
    from cordwood.cli.records.record_format import json_formatter, record_formatter
    from cordwood.cli.usage_error import UsageError

    if as_json and text is not None:
        raise UsageError("--format and --json exclude each other")
    if as_json:
        return json_formatter(topic)
    standard = "%I  %p:%o  %v\\n"
    is_terminal = sys.stdout.isatty()
    return record_formatter(
        standard if text is None else text, topic, null_text="(deleted)", for_terminal=is_terminal
    )


def _newest(reader: "TopicReader", key: bytes) -> "Iterator[tuple[int, Record]]":
    """At most one."""
    for number in _nearest_first(reader, key):
        record = reader.newest(number, key)
        if record is not None:
            yield number, record
            return


def _history(reader: "TopicReader", key: bytes) -> "Iterator[tuple[int, Record]]":
    """All of them: where partitions were added, a key may have been in others before."""
    from cordwood.cli.records.record_stream import RecordStream

    extents = reader.extents()
    starts = {number: extent.start for number, extent in extents.items()}
    stops = {number: extent.end for number, extent in extents.items()}
    for found in RecordStream(reader, starts, _warn, key=key).until(stops):
        yield from found.rows


def _nearest_first(reader: "TopicReader", key: bytes) -> list[int]:
    from cordwood.log.topics.topic import partition_for

    numbers = list(reader.partitions)
    first = partition_for(key, max(numbers) + 1) if numbers else 0
    return sorted(numbers, key=lambda number: (number != first, number))


def _warn(text: str) -> None:
    typer.secho(f"cordwood: {text}", err=True, fg="yellow")
