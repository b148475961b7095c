"""``cordwood produce``: appends lines to a topic as records."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, BinaryIO, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.completion import complete_partition
from cordwood.cli.failures import EXIT_INTERRUPTED, UsageError
from cordwood.cli.options import AtOption, TopicArgument
from cordwood.cli.readable_values import counted
from cordwood.cli.terminal import say

if TYPE_CHECKING:
    from cordwood.cli.at.backend import AppendedTo, Appender
    from cordwood.cli.records.line_records import Destinations, LineParser
    from cordwood.cli.render import Advance, Row
    from cordwood.format.record import Header

_PARTITIONS_SHOWN: Final = 5

FileArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="File with one record per line. Default: standard input.",
    ),
]
SeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--key-separator",
        "-K",
        metavar="TEXT",
        help="Each line is a key, TEXT and a value, as in key:value.",
    ),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", "-k", metavar="KEY", help="Key of each record.")
]
AsJsonOption = Annotated[
    bool,
    typer.Option(
        "--json",
        help="Each line is a JSON object with value, key, headers, timestamp, partition; "
        "value_base64 and key_base64 for bytes.",
    ),
]
HeadersOption = Annotated[
    list[str] | None,
    typer.Option(
        "--header", "-H", metavar="NAME=VALUE", help="Add a header to each record; repeatable."
    ),
]
PartitionOption = Annotated[
    int | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        autocompletion=complete_partition,
        help="Append to this partition. Default: chosen by key.",
    ),
]
TimestampOption = Annotated[
    str | None,
    typer.Option(
        "--timestamp",
        metavar="TIME",
        help="Timestamp of each record: 2026-11-16T09:30, -10m (ago), or ms since 1970. "
        "Default: now.",
    ),
]
NullAsOption = Annotated[
    str | None,
    typer.Option("--null-as", metavar="TEXT", help="A key or value equal to TEXT is null."),
]
SummaryAsJsonOption = Annotated[
    bool, typer.Option("--json-summary", help="Print a summary as a JSON object.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print no summary.")]


def produce(
    topic: TopicArgument,
    file: FileArgument = None,
    *,
    at: AtOption = None,
    key: KeyOption = None,
    separator: SeparatorOption = None,
    as_json: AsJsonOption = False,
    headers: HeadersOption = None,
    partition: PartitionOption = None,
    timestamp: TimestampOption = None,
    null_as: NullAsOption = None,
    summary_as_json: SummaryAsJsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Append lines to a topic as records: values, key:value pairs, or JSON.

    Lines are appended in large batches; lines that arrive slowly are appended at once. When the
    command ends, all records have the durability of the topic. A record without a partition goes
    to the partition its key hashes to, as with Kafka's own clients.

    \b
    Examples:
      seq 100 | cordwood produce numbers
      cordwood produce accounts changes.txt --key-separator :
      cordwood produce orders orders.jsonl --json --header source=import
    """
    from cordwood.cli.at.access import open_backend
    from cordwood.cli.records.line_records import parse_header

    parser = _parser(
        key=key,
        separator=separator,
        as_json=as_json,
        headers=[parse_header(text) for text in headers or ()],
        partition=partition,
        timestamp=timestamp,
        null_as=null_as,
    )
    produced = _Produced(topic)
    with open_backend(parse_target(at)) as backend:
        appender = backend.appender(topic)
        try:
            _append_all(appender, parser, file, produced)
        except KeyboardInterrupt:
            produced.say(as_json=summary_as_json, quiet=quiet)
            raise typer.Exit(EXIT_INTERRUPTED) from None
        finally:
            appender.close()
    produced.say(as_json=summary_as_json, quiet=quiet)


def _parser(
    *,
    key: str | None,
    separator: str | None,
    as_json: bool,
    headers: "list[Header]",
    partition: int | None,
    timestamp: str | None,
    null_as: str | None,
) -> "LineParser":
    from cordwood.cli.records.line_records import JsonLines, TextLines
    from cordwood.cli.records.log_position import parse_time_ms
    from cordwood.clock import SystemClock
    from cordwood.errors import ConfigError

    timestamp_ms = (
        None
        if timestamp is None
        else parse_time_ms(timestamp, "--timestamp", now_ms=SystemClock().now_ms())
    )
    if as_json:
        if any(option is not None for option in (key, separator, null_as)):
            raise UsageError(
                "--json excludes --key, --key-separator and --null-as: JSON names the key and has "
                "null"
            )
        return JsonLines(headers=headers, timestamp_ms=timestamp_ms, partition=partition)
    if key is not None and separator is not None:
        raise UsageError("--key and --key-separator exclude each other")
    if separator == "":
        raise ConfigError("--key-separator", separator, "must not be empty")
    return TextLines(
        key=None if key is None else key.encode(),
        separator=None if separator is None else _unescaped(separator).encode(),
        null_text=None if null_as is None else null_as.encode(),
        headers=headers,
        timestamp_ms=timestamp_ms,
        partition=partition,
    )


def _unescaped(text: str) -> str:
    return text.replace("\\t", "\t").replace("\\0", "\0")


def _append_all(
    appender: "Appender", parser: "LineParser", file: Path | None, produced: "_Produced"
) -> None:
    from cordwood.cli.records.input_lines import InputLines
    from cordwood.cli.render import progress_bar
    from cordwood.errors import CordwoodError

    with _input(file) as stream:
        total = os.fstat(stream.fileno()).st_size if file is not None else None
        label = f"{file.name} to {produced.topic}" if file is not None else ""
        with progress_bar(label, total=total) if file is not None else _no_bar() as advance:
            lines = InputLines(stream, idle=appender.idle, advance=advance)
            for block in lines.blocks():
                try:
                    destinations = parser.parse(block)
                except CordwoodError as error:
                    count = counted(produced.count, "record")
                    error.add_note(f"{count} appended before")
                    raise
                try:
                    produced.append(appender, destinations)
                except (CordwoodError, OSError) as error:
                    last = block.first_number + len(block.lines) - 1
                    error.add_note(
                        f"while appending lines {block.first_number} to {last}; "
                        f"{counted(produced.count, 'record')} appended before"
                    )
                    raise


@contextmanager
def _no_bar() -> "Iterator[Advance]":
    yield lambda count: None


@contextmanager
def _input(file: Path | None) -> Iterator[BinaryIO]:
    if file is None:
        if sys.stdin.isatty() and sys.stderr.isatty():
            say("one record per line; Ctrl-D ends")
        yield sys.stdin.buffer
        return
    with open(file, "rb", buffering=0) as stream:
        yield stream


class _Produced:
    """What was appended so far: the number of records and their offsets."""

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self.count = 0
        self._parts: dict[int, list[int]] = {}  # partition: first offset, next offset, records

    def append(self, appender: "Appender", destinations: "Destinations") -> None:
        for partition, records in destinations.items():
            for part in appender.append(records, partition):
                self._note(part)

    def _note(self, part: "AppendedTo") -> None:
        count = part.next_offset - part.first_offset
        known = self._parts.setdefault(part.partition, [part.first_offset, 0, 0])
        known[1] = part.next_offset
        known[2] += count
        self.count += count

    def say(self, *, as_json: bool, quiet: bool) -> None:
        """Print the summary: text on standard error, JSON on standard output."""
        if as_json:
            from cordwood.cli.render import JsonOutput

            JsonOutput().facts((), self._summary())
        elif not quiet:
            shown = sorted(self._parts.items())[:_PARTITIONS_SHOWN]
            places = [
                f"partition {number}: {_shown_offsets(first, end)}"
                for number, (first, end, _) in shown
            ]
            more = ["..."] if len(self._parts) > len(shown) else []
            where = f" ({'; '.join(places + more)})" if places else ""
            say(f"appended {counted(self.count, 'record')} to {self.topic}{where}")

    def _summary(self) -> "Row":
        return {
            "topic": self.topic,
            "records": self.count,
            "partitions": [
                {
                    "partition": number,
                    "first_offset": first,
                    "next_offset": following,
                    "records": count,
                }
                for number, (first, following, count) in sorted(self._parts.items())
            ],
        }


def _shown_offsets(first: int, end: int) -> str:
    return f"offset {first}" if end == first + 1 else f"offsets {first} to {end - 1}"
