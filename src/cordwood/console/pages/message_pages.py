"""The records of a topic: newest, from an offset or a time, of a key; and one record alone."""

from collections.abc import Iterator
from typing import Final

from cordwood.console.decoding.masking import TopicMasking
from cordwood.console.decoding.value_decoders import CHOICES
from cordwood.console.facts.cluster_facts import TopicFacts
from cordwood.console.facts.topic_records import Extent, TopicRecords
from cordwood.console.finding.query_syntax import QuerySyntaxError, parse_moment_ms, parse_query
from cordwood.console.pages.page import BadParameterError, PageNotFoundError, PageRequest
from cordwood.console.views.message_rows import (
    Decoders,
    MessageRow,
    MessageView,
    message_row,
    message_view,
    newest_first,
    oldest_first,
)
from cordwood.format.record import Record
from cordwood.value_class import dataclass

MESSAGES_SHOWN: Final = 50
HISTORY_MAX: Final = 200
_HISTORY_S: Final = 20.0
_WINDOWS_MAX: Final = 12  # how often a reader steps back over a stretch that compaction emptied
_PARTITIONS_MAX: Final = 100  # that are read for one page

FROM: Final = {
    "newest": "Newest",
    "oldest": "Oldest",
    "offset": "From offset",
    "time": "From time",
    "key": "Of a key",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagesView:
    """A page of records. `next_offsets` of one partition leads to the pages beside it."""

    topic: TopicFacts
    rows: tuple[MessageRow, ...]
    origin: str
    partition: int | None
    offset: int | None
    time: str
    key: str
    query: str
    query_problem: str | None
    decoders: Decoders
    extents: dict[int, Extent]
    older: int | None
    newer: int | None
    has_more_history: bool
    partitions_read: int
    masked: bool

    @property
    def is_empty(self) -> bool:
        return all(extent.start == extent.end for extent in self.extents.values())


def decoders_of(request: PageRequest) -> Decoders:
    choices = dict.fromkeys(CHOICES)
    return Decoders(
        key=request.choice("key_as", choices, "auto"),
        value=request.choice("value_as", choices, "auto"),
    )


def show_messages(request: PageRequest) -> MessagesView:
    topic = request.topic()
    request.check_may_read(topic.name)
    query = request.text("q")
    origin = request.choice("from", FROM, "newest")
    masking = request.console.config.masking.of_topic(topic.name)
    records = request.console.records(topic.name, request.viewer)
    extents = records.extents()
    partition = request.number("partition")
    if partition is not None and partition not in extents:
        raise PageNotFoundError(f"Topic {topic.name} has no partition {partition}.")
    chosen = extents if partition is None else {partition: extents[partition]}
    chosen = dict(sorted(chosen.items())[:_PARTITIONS_MAX])
    reading = _Reading(
        topic=topic.name,
        records=records,
        extents=chosen,
        masking=masking,
        decoders=decoders_of(request),
    )
    problem = None
    if query:
        try:
            parse_query(query)
        except QuerySyntaxError as error:
            problem = str(error)
    found = _Found(rows=[]) if query else _found(request, origin, partition, reading)
    return MessagesView(
        topic=topic,
        rows=tuple(found.rows),
        origin=origin,
        partition=partition,
        offset=request.number("offset"),
        time=request.text("time"),
        key=request.text("key"),
        query=query,
        query_problem=problem,
        decoders=reading.decoders,
        extents=extents,
        older=found.older,
        newer=found.newer,
        has_more_history=found.has_more,
        partitions_read=len(chosen),
        masked=bool(masking),
    )


@dataclass(slots=True, kw_only=True)
class _Found:
    rows: list[MessageRow]
    older: int | None = None
    newer: int | None = None
    has_more: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    topic: str
    records: TopicRecords
    extents: dict[int, Extent]
    masking: TopicMasking
    decoders: Decoders

    def row(self, partition: int, record: Record) -> MessageRow:
        return message_row(self.topic, partition, record, self.masking, self.decoders)


def _found(request: PageRequest, origin: str, partition: int | None, reading: _Reading) -> _Found:
    match origin:
        case "key":
            return _history(request, reading)
        case "time":
            starts = reading.records.offsets_at(moment_of(request))
            return _from(reading, starts)
        case "offset":
            wanted = request.number("offset", 0) or 0
            return _from(reading, {n: e.clamp(wanted) for n, e in reading.extents.items()})
        case "oldest":
            return _from(reading, {n: e.start for n, e in reading.extents.items()})
        case _:
            before = request.number("before") if partition is not None else None
            return _newest(reading, before)


def moment_of(request: PageRequest) -> int:
    given = request.text("time")
    if not given:
        raise BadParameterError("Give a time, such as 2026-11-17T09:00 (UTC).")
    try:
        return parse_moment_ms(given)
    except (ValueError, OverflowError) as error:
        raise BadParameterError(
            f"{given[:40]!r} is not a time such as 2026-11-17T09:00 (UTC)."
        ) from error


def _newest(reading: _Reading, before: int | None) -> _Found:
    rows: list[MessageRow] = []
    for number, extent in reading.extents.items():
        end = extent.end if before is None else extent.clamp(before)
        for record in read_back(reading.records, number, extent.start, end, MESSAGES_SHOWN):
            rows.append(reading.row(number, record))
    shown = newest_first(rows, MESSAGES_SHOWN)
    found = _Found(rows=shown)
    if len(reading.extents) == 1 and shown:
        [extent] = reading.extents.values()
        shown.sort(key=lambda row: row.offset, reverse=True)
        found.older = shown[-1].offset if shown[-1].offset > extent.start else None
        found.newer = shown[0].offset + 1 if shown[0].offset + 1 < extent.end else None
    return found


def read_back(
    records: TopicRecords, partition: int, start: int, end: int, count: int
) -> list[Record]:
    """The last records before `end`, oldest first. Steps further back if compaction left gaps."""
    found: list[Record] = []
    window = count
    for _ in range(_WINDOWS_MAX):
        if end <= start or len(found) >= count:
            break
        first = max(end - window, start)
        found = [*records.read(partition, first, end, window), *found]
        end = first
        window = min(window * 4, 200_000)
    return found[-count:]


def _from(reading: _Reading, starts: dict[int, int]) -> _Found:
    rows: list[MessageRow] = []
    for number, extent in reading.extents.items():
        start = starts.get(number, extent.end)
        for record in reading.records.read(number, start, extent.end, MESSAGES_SHOWN):
            rows.append(reading.row(number, record))
    shown = oldest_first(rows, MESSAGES_SHOWN)
    found = _Found(rows=shown)
    if len(reading.extents) == 1 and shown:
        [extent] = reading.extents.values()
        shown.sort(key=lambda row: row.offset)
        found.older = shown[0].offset if shown[0].offset > extent.start else None
        found.newer = shown[-1].offset + 1 if shown[-1].offset + 1 < extent.end else None
    return found


def key_bytes(text: str) -> bytes:
    """A key as a viewer types it: text, or 0x and hex digits."""
    if not text.lower().startswith("0x"):
        return text.encode()
    try:
        return bytes.fromhex(text[2:])
    except ValueError as error:
        raise BadParameterError("After 0x, a key has pairs of hex digits.") from error


def _history(request: PageRequest, reading: _Reading) -> _Found:
    if reading.masking.hides_keys:
        raise BadParameterError("Keys of this topic are hidden by a masking rule.")
    key = key_bytes(request.text("key"))
    rows: list[MessageRow] = []
    for number, record in _of_key(reading.records, key, request.number("partition")):
        rows.append(reading.row(number, record))
        if len(rows) > 4 * HISTORY_MAX:
            del rows[:HISTORY_MAX]
    has_more = len(rows) > HISTORY_MAX
    return _Found(rows=rows[::-1][:HISTORY_MAX], has_more=has_more)


def _of_key(
    records: TopicRecords, key: bytes, partition: int | None
) -> Iterator[tuple[int, Record]]:
    for number, record in records.history(key, _HISTORY_S):
        if partition is None or number == partition:
            yield number, record


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePageView:
    """One record with its neighbours."""

    topic: TopicFacts
    message: MessageView
    extent: Extent
    decoders: Decoders
    previous: int | None
    following: int | None
    key_text: str | None
    was_exact: bool


def show_message(request: PageRequest) -> MessagePageView:
    """The record at an offset, or the next one if compaction removed it."""
    topic = request.topic()
    request.check_may_read(topic.name)
    partition, offset = request.path_number("partition"), request.path_number("offset")
    records = request.console.records(topic.name, request.viewer)
    extent = records.extents().get(partition)
    if extent is None:
        raise PageNotFoundError(f"Topic {topic.name} has no partition {partition}.")
    if not extent.start <= offset < extent.end:
        raise PageNotFoundError(
            f"Offset {offset} is not in {topic.name}-{partition}, which holds offsets "
            f"{extent.start} to {extent.end - 1}."
            if extent.end > extent.start
            else f"{topic.name}-{partition} is empty."
        )
    found = records.read(partition, offset, extent.end, 2)
    if not found:
        raise PageNotFoundError(f"No record follows offset {offset} in {topic.name}-{partition}.")
    record = found[0]
    before = read_back(records, partition, extent.start, record.offset, 1)
    masking = request.console.config.masking.of_topic(topic.name)
    decoders = decoders_of(request)
    return MessagePageView(
        topic=topic,
        message=message_view(topic.name, partition, record, masking, decoders),
        extent=extent,
        decoders=decoders,
        previous=before[0].offset if before else None,
        following=found[1].offset if len(found) > 1 else None,
        key_text=None if record.key is None or masking.hides_keys else key_text(record.key),
        was_exact=record.offset == offset,
    )


def key_text(key: bytes) -> str:
    """A key as `key_bytes` reads it."""
    try:
        text = key.decode()
    except UnicodeDecodeError:
        return f"0x{key.hex()}"
    return text if text.isprintable() and not text.lower().startswith("0x") else f"0x{key.hex()}"
