"""Records and tables as files: JSON lines and CSV. What masking rules hide is hidden here too."""

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from cordwood.console.facts.topic_records import TopicRecords
from cordwood.console.finding.query_syntax import QuerySyntaxError, parse_query
from cordwood.console.finding.search_run import Hit, search
from cordwood.console.pages.json_values import json_text
from cordwood.console.pages.message_pages import (
    FROM,
    decoders_of,
    key_bytes,
    moment_of,
    read_back,
)
from cordwood.console.pages.page import BadParameterError, PageForbiddenError, PageRequest
from cordwood.console.views.message_rows import record_as_json
from cordwood.console.views.table import TablePage
from cordwood.format.record import Record

EXPORTED_MAX: Final = 1_000_000
_DEFAULT_COUNT: Final = 10_000
_NEWEST_MAX: Final = 10_000
_READ_AT_ONCE: Final = 1_000
FORMATS: Final = {"jsonl": "application/x-ndjson", "csv": "text/csv"}

Placed = tuple[int, Record]
# The parts of a file. A search that finds nothing for a while gives None, so that whoever iterates
# can stop it.
Found = Iterator[Placed | None]


def export_records(
    request: PageRequest, is_cancelled: Callable[[], bool]
) -> tuple[str, str, Iterator[bytes]]:
    """The name, the type and the content of a file with the records that a page begins to show."""
    topic = request.topic()
    request.check_may_read(topic.name)
    kind = request.choice("format", FORMATS, "jsonl")
    count = min(request.number("count", _DEFAULT_COUNT) or _DEFAULT_COUNT, EXPORTED_MAX)
    records = request.console.records(topic.name, request.viewer)
    chosen = _chosen(request, records, count, is_cancelled)
    masking = request.console.config.masking.of_topic(topic.name)
    decoders = decoders_of(request)
    rows = (
        None if placed is None else record_as_json(*placed, topic.name, masking, decoders)
        for placed in chosen
    )
    content = _json_lines(rows) if kind == "jsonl" else _csv_lines(rows)
    return f"{topic.name}.{kind}", FORMATS[kind], content


def _chosen(
    request: PageRequest, records: TopicRecords, count: int, is_cancelled: Callable[[], bool]
) -> Found:
    partition = request.number("partition")
    extents = {
        number: extent
        for number, extent in records.extents().items()
        if partition is None or number == partition
    }
    masking = request.console.config.masking.of_topic(records.topic)
    query = request.text("q")
    if query:
        return _searched(request, records, query, count, is_cancelled)
    match request.choice("from", FROM, "newest"):
        case "key":
            if masking.hides_keys:
                raise PageForbiddenError("Keys of this topic are hidden by a masking rule.")
            return _first(records.history(key_bytes(request.text("key"))), count)
        case "newest":
            found = [
                (number, record)
                for number, extent in extents.items()
                for record in read_back(
                    records, number, extent.start, extent.end, min(count, _NEWEST_MAX)
                )
            ]
            found.sort(key=lambda placed: (placed[1].timestamp_ms or 0, placed[0]))
            return iter(found[-min(count, _NEWEST_MAX) :])
        case "time":
            starts = records.offsets_at(moment_of(request))
        case "offset":
            wanted = request.number("offset", 0) or 0
            starts = {number: extent.clamp(wanted) for number, extent in extents.items()}
        case _:
            starts = {number: extent.start for number, extent in extents.items()}
    ranges = {n: (starts.get(n, extent.end), extent.end) for n, extent in extents.items()}
    return _first(_in_order(records, ranges), count)


def _searched(
    request: PageRequest,
    records: TopicRecords,
    query: str,
    count: int,
    is_cancelled: Callable[[], bool],
) -> Found:
    try:
        tree = parse_query(query)
    except QuerySyntaxError as error:
        raise BadParameterError(f"This search cannot be understood: {error}") from error
    partition = request.number("partition")
    found = search(
        records,
        tree,
        request.console.config.masking.of_topic(records.topic),
        is_cancelled=is_cancelled,
        partitions=None if partition is None else frozenset({partition}),
        hits_max=min(count, _NEWEST_MAX),
    )
    return ((item.partition, item.record) if isinstance(item, Hit) else None for item in found)


def _first(records: Iterable[Placed], count: int) -> Iterator[Placed]:
    for number, placed in enumerate(records):
        if number >= count:
            return
        yield placed


def _in_order(records: TopicRecords, ranges: dict[int, tuple[int, int]]) -> Iterator[Placed]:
    for number, (start, end) in sorted(ranges.items()):
        at = start
        while at < end:
            found = records.read(number, at, end, _READ_AT_ONCE)
            for record in found:
                yield number, record
            if not found:
                break
            at = found[-1].offset + 1


def _json_lines(rows: Iterable[dict[str, object] | None]) -> Iterator[bytes]:
    for row in rows:
        if row is None:
            yield b""
        else:
            yield json_text(row) + b"\n"


def _csv_lines(rows: Iterable[dict[str, object] | None]) -> Iterator[bytes]:
    names = ("topic", "partition", "offset", "timestamp_ms", "key", "value", "headers")
    yield csv_line(names)
    for row in rows:
        yield b"" if row is None else csv_line([row[name] for name in names])


def csv_line(cells: Iterable[object]) -> bytes:
    """One line. A text that a spreadsheet would take for a formula gets an apostrophe before it."""
    buffer = io.StringIO()
    csv.writer(buffer).writerow([_cell(cell) for cell in cells])
    return buffer.getvalue().encode(errors="backslashreplace")


def _cell(cell: object) -> object:
    if cell is None or isinstance(cell, (int, float)):
        return cell
    text = cell if isinstance(cell, str) else json_text(cell).decode()
    return f"'{text}" if text[:1] in {"=", "+", "-", "@", "\t", "\r"} else text


def table_as_csv(table: TablePage[Any]) -> Iterator[bytes]:
    """All rows that pass the filter, not only those of one page."""
    yield csv_line(column.title for column in table.columns)
    for row in table.all_rows:
        yield csv_line(column.value(row) for column in table.columns)
