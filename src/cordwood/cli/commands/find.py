"""``cordwood find``: prints the newest record of a key, or all its records."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.failures import UsageError
from cordwood.cli.options import (
    AtOption,
    JsonOption,
    PartitionsOption,
    RecordFormatOption,
    TopicArgument,
)
from cordwood.cli.terminal import say, warn

if TYPE_CHECKING:
    from cordwood.cli.at.backend import TopicReader
    from cordwood.cli.at.target import Target
    from cordwood.cli.records.record_format import Formatter
    from cordwood.format.record import Record


def find(
    topic: TopicArgument,
    key: Annotated[
        str, typer.Argument(metavar="KEY", help="Key, as text or as 0x and hex digits.")
    ],
    *,
    at: AtOption = None,
    history: Annotated[
        bool, typer.Option("--history", help="Print every record of the key, oldest first.")
    ] = False,
    partition: PartitionsOption = None,
    record_format: RecordFormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the newest record of a key. Exit code 1 if there is none.

    The partition that the key hashes to is searched first, the others only if the key is not
    there. Topics with key.index=true are searched by their key indexes, others are read
    completely. If the broker is on this machine, its files are searched.

    \b
    Examples:
      cordwood find accounts user:42
      cordwood find accounts user:42 --history --json
    """
    from cordwood.cli.at.access import open_backend

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
        say(f"cordwood: topic {topic} has no record with key {key}")
        raise typer.Exit(1)


def _nearest(target: "Target") -> "Target":
    """The files of a broker if they are on this machine: a broker cannot search for a key."""
    from cordwood.cli.at.access import local_files_of
    from cordwood.cli.at.target import BrokerTarget

    return (local_files_of(target) or target) if isinstance(target, BrokerTarget) else target


def _parse_key(text: str) -> bytes:
    from cordwood.errors import ConfigError

    if not text.lower().startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text[2:])
    except ValueError as error:
        raise ConfigError("KEY", text, f"must be 0x and hex digits: {error}") from error


def _formatter(topic: str, text: str | None, *, as_json: bool) -> "Formatter":
    from cordwood.cli.records.record_format import json_formatter, record_formatter

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
    """The newest record of the key, if there is one."""
    for number in _nearest_first(reader, key):
        record = reader.newest(number, key)
        if record is not None:
            yield number, record
            return


def _history(reader: "TopicReader", key: bytes) -> "Iterator[tuple[int, Record]]":
    """All records of the key, in all partitions: it may have moved when partitions were added."""
    from cordwood.cli.records.record_stream import RecordStream

    extents = reader.extents()
    starts = {number: extent.start for number, extent in extents.items()}
    stops = {number: extent.end for number, extent in extents.items()}
    for found in RecordStream(reader, starts, warn, key=key).until(stops):
        yield from found.rows


def _nearest_first(reader: "TopicReader", key: bytes) -> list[int]:
    from cordwood.log.topics.topic import partition_for

    numbers = list(reader.partitions)
    first = partition_for(key, max(numbers) + 1) if numbers else 0
    return sorted(numbers, key=lambda number: (number != first, number))
