"""``cordwood consume``: prints the records of a topic, existing and new ones."""

import re
import sys
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import parse_target
from cordwood.cli.completion import complete_group
from cordwood.cli.failures import EXIT_INTERRUPTED, UsageError
from cordwood.cli.options import (
    AtOption,
    JsonOption,
    PartitionsOption,
    RecordFormatOption,
    TopicArgument,
)
from cordwood.cli.readable_values import counted
from cordwood.cli.signals import Interruption
from cordwood.cli.terminal import discard_stdout, warn

if TYPE_CHECKING:
    from cordwood.cli.at.backend import Backend, Extent, TopicReader
    from cordwood.cli.records.record_format import Formatter
    from cordwood.cli.records.record_stream import Row, StreamedRows

_COMMIT_S: Final = 5.0

BeginOption = Annotated[
    str | None,
    typer.Option(
        "--from",
        metavar="POSITION",
        help="Start at: beginning, end, an offset, -10 (records before the end), -10m (ago), "
        "or a time. Default: beginning; with --follow: end.",
    ),
]
EndOption = Annotated[
    str | None,
    typer.Option("--to", metavar="POSITION", help="Stop before this offset or time. Default: end."),
]
CountOption = Annotated[
    int | None, typer.Option("-n", "--count", min=0, help="Stop after this many records.")
]
FollowOption = Annotated[
    bool, typer.Option("--follow", "-f", help="Wait for new records until interrupted.")
]
GroupOption = Annotated[
    str | None,
    typer.Option(
        "--group",
        "-g",
        autocompletion=complete_group,
        help="Start at the offsets this group committed, and commit its progress.",
    ),
]
SeparatorOption = Annotated[
    str | None,
    typer.Option(
        "--key-separator", "-K", metavar="TEXT", help="Print key and value with TEXT between."
    ),
]
GrepOption = Annotated[
    str | None,
    typer.Option("--grep", metavar="REGEX", help="Only records whose key or value matches."),
]
KeyOption = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Only records with this key.")
]
NullAsOption = Annotated[
    str, typer.Option("--null-as", metavar="TEXT", help="Print TEXT for a null key or value.")
]
SkipDamagedOption = Annotated[
    bool,
    typer.Option(
        "--skip-damaged",
        help="Skip records that cannot be read, with a warning. Reads files, not through a broker.",
    ),
]


def consume(
    topic: TopicArgument,
    *,
    at: AtOption = None,
    begin: BeginOption = None,
    end: EndOption = None,
    count: CountOption = None,
    follow: FollowOption = False,
    group: GroupOption = None,
    partition: PartitionsOption = None,
    record_format: RecordFormatOption = None,
    separator: SeparatorOption = None,
    as_json: JsonOption = False,
    grep: GrepOption = None,
    key: KeyOption = None,
    null_as: NullAsOption = "",
    skip_damaged: SkipDamagedOption = False,
) -> None:
    """Print the records of a topic, one value per line.

    Records of several partitions are merged by time; with --follow they are printed as they
    arrive. Requested records that no longer exist are reported on stderr.

    With --group the command reads all partitions itself, so the group must have no members.
    Offsets of printed records are committed every few seconds and at the end. --from then applies
    only to partitions without a committed offset.

    \b
    Examples:
      cordwood consume orders --from -10m
      cordwood consume orders -n 5 --format '%p:%o %k %v\\n'
      cordwood consume orders --follow --grep paid --json
    """
    from cordwood.cli.at.access import files_of, open_backend

    formatter = _formatter(topic, record_format, separator, null_as, as_json=as_json)
    matches = _matcher(grep)
    _check_options(end=end, follow=follow, group=group)
    target = parse_target(at)
    with open_backend(files_of(target) if skip_damaged else target) as backend:
        reader = backend.reader(topic, partition)
        progress = None if group is None else _GroupProgress(backend, group, topic)
        chosen_key = None if key is None else key.encode()
        stream = _stream(
            reader,
            progress,
            begin or ("end" if follow and group is None else "beginning"),
            end,
            key=chosen_key,
            follow=follow,
            is_choice=partition is not None,
            skip_damaged=skip_damaged,
        )
        printer = _Printer(formatter, matches, count)
        interruption = Interruption()
        try:
            with interruption.handled():
                _print_all(stream, printer, progress, interruption)
        except KeyboardInterrupt:
            _commit(progress)
            raise typer.Exit(0 if follow else EXIT_INTERRUPTED) from None
        except BrokenPipeError:
            discard_stdout()
        _commit(progress)


def _check_options(*, end: str | None, follow: bool, group: str | None) -> None:
    from cordwood.errors import ConfigError

    if follow and end is not None:
        raise UsageError("--follow and --to exclude each other; use -n to stop after some records")
    if group == "":
        raise ConfigError("--group", group, "must not be empty")


def _formatter(
    topic: str, text: str | None, separator: str | None, null_as: str, *, as_json: bool
) -> "Formatter":
    from cordwood.cli.records.record_format import json_formatter, record_formatter

    if sum((text is not None, separator is not None, as_json)) > 1:
        raise UsageError("--format, --key-separator and --json exclude each other")
    if as_json:
        return json_formatter(topic)
    if separator is not None:
        text = f"%k{separator.replace('%', '%%')}%v\\n"
    return record_formatter(
        "%v\\n" if text is None else text,
        topic,
        null_text=null_as,
        for_terminal=sys.stdout.isatty(),
    )


def _matcher(grep: str | None) -> "re.Pattern[bytes] | None":
    from cordwood.errors import ConfigError

    if grep is None:
        return None
    try:
        return re.compile(grep.encode())
    except re.error as error:
        raise ConfigError("--grep", grep, f"is not a regular expression: {error}") from error


def _stream(
    reader: "TopicReader",
    progress: "_GroupProgress | None",
    begin: str,
    end: str | None,
    *,
    key: bytes | None,
    follow: bool,
    is_choice: bool,
    skip_damaged: bool,
) -> "Iterator[StreamedRows]":
    from cordwood.cli.records.log_position import parse_position
    from cordwood.cli.records.record_stream import RecordStream, resolve_position
    from cordwood.clock import SystemClock

    now_ms = SystemClock().now_ms()
    extents = reader.extents()
    starts = resolve_position(reader, parse_position(begin, "--from", now_ms=now_ms), extents, warn)
    if progress is not None:
        starts |= progress.starts(extents)
    stream = RecordStream(reader, starts, warn, key=key, skip_damaged=skip_damaged)
    if follow:
        return stream.follow(chooses_partitions=is_choice)
    stops = {number: extent.end for number, extent in extents.items()}
    if end is not None:
        stops = resolve_position(
            reader, parse_position(end, "--to", now_ms=now_ms), extents, lambda text: None
        )
    return stream.until(stops)


def _print_all(
    stream: "Iterator[StreamedRows]",
    printer: "_Printer",
    progress: "_GroupProgress | None",
    interruption: Interruption,
) -> None:
    if printer.has_enough():
        return
    for found in stream:
        with interruption.held():
            positions = printer.show(found)
            if progress is not None:
                progress.note(positions)
        if printer.has_enough():
            return


def _commit(progress: "_GroupProgress | None") -> None:
    if progress is not None:
        progress.commit()


class _Printer:
    """Writes matching records to standard output, at most `count` of them."""

    def __init__(
        self, formatter: "Formatter", matches: "re.Pattern[bytes] | None", count: int | None
    ) -> None:
        self._formatter = formatter
        self._matches = matches
        self._left = count
        self._out = sys.stdout.buffer

    def has_enough(self) -> bool:
        return self._left is not None and self._left <= 0

    def show(self, found: "StreamedRows") -> Mapping[int, int]:
        """Write the rows; return the next position of each partition after those consumed."""
        from cordwood.cli.records.record_stream import positions_behind

        rows = found.rows
        chosen = [row for row in rows if self._is_match(row)] if self._matches else rows
        if self._left is not None and len(chosen) >= self._left:
            chosen = chosen[: self._left]
            self._left = 0
            self._write(chosen)
            last = rows.index(chosen[-1]) if chosen else -1
            return positions_behind(rows[: last + 1])
        if self._left is not None:
            self._left -= len(chosen)
        self._write(chosen)
        return found.positions

    def _is_match(self, row: "Row") -> bool:
        search, (_, record) = self._matches.search, row  # type: ignore[union-attr]
        return bool(
            (record.value is not None and search(record.value))
            or (record.key is not None and search(record.key))
        )

    def _write(self, rows: "list[Row]") -> None:
        if rows:
            self._out.write(b"".join([self._formatter(*row) for row in rows]))
            self._out.flush()


class _GroupProgress:
    """The offsets of a group: where it starts, and commits after records were printed."""

    def __init__(self, backend: "Backend", group: str, topic: str) -> None:
        self._backend = backend
        self._group = group
        self._topic = topic
        self._positions: dict[int, int] = {}
        self._committed: dict[int, int] = {}
        self._committed_s = time.monotonic()

    def starts(self, extents: "Mapping[int, Extent]") -> dict[int, int]:
        """The committed offset of each partition that has one."""
        from cordwood.cli.records.record_stream import within_extents
        from cordwood.errors import LogError

        facts = self._backend.group(self._group)
        if facts is None:
            return {}
        if facts.members:
            raise LogError(
                f"group {self._group} has {counted(len(facts.members), 'active member')}; "
                "stop its members, or use another group"
            )
        self._committed = {
            place.partition: place.offset
            for place in facts.committed
            if place.topic == self._topic and place.partition in extents
        }
        return within_extents(self._topic, self._committed, extents, warn)

    def note(self, positions: Mapping[int, int]) -> None:
        """Records before `positions` were printed; commit them if some time has passed."""
        self._positions |= positions
        if time.monotonic() - self._committed_s > _COMMIT_S:
            self.commit()

    def commit(self) -> None:
        changed = {n: o for n, o in self._positions.items() if self._committed.get(n) != o}
        if changed:
            self._backend.commit(self._group, {(self._topic, n): o for n, o in changed.items()})
            self._committed |= changed
        self._committed_s = time.monotonic()
