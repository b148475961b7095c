"""Encodes Arrow columns into record batches, without a Python object for each row.

Rows come as columns of keys, values, times and headers. Each row has a *place*, a number for one
partition of one topic. The rows of a place are encoded one after another until they fill a batch.
A place that gets few rows at a time fills a batch over many calls.
"""

from array import array
from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa

from cordwood.errors import RecordTooLargeError
from cordwood.format import column_kernels as kernels
from cordwood.format.batch_builder import (
    BATCH_BYTES_TARGET,
    BatchStyle,
    finish_batch,
    scratch_size,
)
from cordwood.format.batch_header import HEADER_SIZE
from cordwood.format.compression import Codec
from cordwood.quantities import KIB, MIB, TimestampMs
from cordwood.value_class import dataclass

_NO_WORDS: Final = memoryview(array("q"))
_SCRATCH_MIN: Final = 16 * KIB
# Limit for all buffers of unfinished batches; above it, the batches are finished as they are.
_WAITING_BYTES_MAX: Final = 64 * MIB

PlaceWriter = Callable[[int, memoryview], None]


@dataclass(frozen=True, slots=True)
class Spans:
    """The bytes of one column: the position of each row's bytes in `data`."""

    words: memoryview
    data: memoryview
    nulls: int

    @classmethod
    def of(cls, column: "pa.Array[Any]") -> "Spans":
        """The spans of a column of strings or bytes, of any of Arrow's kinds."""
        kind = column.type
        if not (pa.types.is_binary(kind) or pa.types.is_string(kind)):
            column = column.cast(pa.string() if _is_text(kind) else pa.binary())
        validity, ends, data = column.buffers()
        content = memoryview(b"") if data is None else memoryview(data).cast("B")
        return cls._make(column, validity, ends, len(content), content)

    @classmethod
    def of_lists(cls, column: "pa.ListArray[Any]") -> "Spans":
        """The spans of a column of lists: the range of each row's items."""
        validity, ends = column.buffers()[:2]
        return cls._make(column, validity, ends, len(column.values), memoryview(b""))

    @classmethod
    def _make(
        cls,
        column: "pa.Array[Any]",
        validity: pa.Buffer | None,
        ends: pa.Buffer | None,
        data_size: int,
        content: memoryview,
    ) -> "Spans":
        count = len(column)
        words = memoryview(array("q", bytes(16 * count)))
        if not count or ends is None:
            return cls(words, content, 0)
        end_words = memoryview(ends).cast("B")[: 4 * (column.offset + count + 1)].cast("i")
        bits = memoryview(b"")
        if validity is not None and column.null_count:
            bits = memoryview(validity).cast("B")
        nulls = kernels.spans(end_words, column.offset, count, bits, data_size, words)
        return cls(words, content, nulls)


NO_SPANS: Final = Spans(_NO_WORDS, memoryview(b""), 0)


def _is_text(kind: pa.DataType) -> bool:
    text = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(
        pa.types.is_string(text) or pa.types.is_large_string(text) or pa.types.is_string_view(text)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The rows of one Arrow record batch, ready to be encoded.

    `times` are in ms, empty if all rows get `now_ms`; `headers` are spans of items, whose names
    and values follow.
    """

    count: int
    values: Spans
    keys: Spans = NO_SPANS
    times: memoryview = _NO_WORDS
    headers: Spans = NO_SPANS
    header_names: Spans = NO_SPANS
    header_values: Spans = NO_SPANS
    now_ms: TimestampMs

    @classmethod
    def of(
        cls,
        *,
        value: "pa.Array[Any]",
        key: "pa.Array[Any] | None" = None,
        timestamp: "pa.Array[Any] | None" = None,
        headers: "pa.ListArray[Any] | None" = None,
        now_ms: TimestampMs,
    ) -> "RecordColumns":
        """From columns as Spark passes them: strings or bytes, a timestamp, a list of structs."""
        lists = names = header_values = NO_SPANS
        if headers is not None and headers.null_count < len(headers):
            lists = Spans.of_lists(headers)
            structs: Any = headers.values
            items = structs.flatten()
            names, header_values = Spans.of(items[0]), Spans.of(items[1])
        return cls(
            count=len(value),
            values=Spans.of(value),
            keys=NO_SPANS if key is None or key.null_count == len(key) else Spans.of(key),
            times=_NO_WORDS if timestamp is None else _times_ms(timestamp, now_ms),
            headers=lists,
            header_names=names,
            header_values=header_values,
            now_ms=now_ms,
        )


def _times_ms(column: "pa.Array[Any]", now_ms: TimestampMs) -> memoryview:
    """Milliseconds since 1970; `now_ms` for a row without a time."""
    zone = column.type.tz
    words: Any = column.cast(pa.timestamp("ms", zone), safe=False).cast(pa.int64())
    if words.null_count:
        words = words.fill_null(now_ms)
    buffer = words.buffers()[1]
    if buffer is None:
        return _NO_WORDS
    end = 8 * (words.offset + len(words))
    return memoryview(buffer).cast("B")[8 * words.offset : end].cast("q")


@dataclass(slots=True, kw_only=True)
class PlaceRule:
    """How `choose_places` finds the place of a row. Mutable: topics are added, turns advance.

    first_places      by topic: the place of its partition 0
    partition_counts  by topic
    crc_table         empty: keys are hashed with murmur2; else the table of CRC-32
    turn              number of the next row without a key
    rows_per_turn     rows without a key that one partition gets before the next
    """

    first_places: "array[int]"
    partition_counts: "array[int]"
    crc_table: "array[int]"
    turn: int
    rows_per_turn: int


class ChosenPlaces:
    """Rows grouped by place, each group in its original order."""

    def __init__(self, places: "array[int]", place_count: int) -> None:
        self._starts = array("q", bytes(8 * (place_count + 1)))
        self.rows = array("i", bytes(4 * len(places)))
        kernels.order_by_place(places, self._starts, self.rows)

    def runs(self) -> list[tuple[int, int, int]]:
        """(place, first, stop) for each place that has rows: positions in `rows`."""
        starts = self._starts
        return [
            (place, starts[place], starts[place + 1])
            for place in range(len(starts) - 1)
            if starts[place + 1] > starts[place]
        ]


class _Unfinished:
    """A batch that is being filled. Its records begin after the space for the header."""

    __slots__ = (
        "base_timestamp",
        "end",
        "limit",
        "max_timestamp",
        "record_count",
        "scratch",
        "style",
    )

    def __init__(self, style: BatchStyle, target: int) -> None:
        self.style = style
        self.limit = scratch_size(style, target)
        self.scratch = bytearray(min(_SCRATCH_MIN, self.limit))
        self.clear()

    def clear(self) -> None:
        self.end = HEADER_SIZE
        self.record_count = 0
        self.base_timestamp = self.max_timestamp = -1


class ColumnBatches:
    """Encodes rows into the batches of their places, and passes on each full batch.

    `write` gets a place and a batch, which is valid until `write` returns. For one thread.
    """

    def __init__(self, write: PlaceWriter, *, batch_bytes_target: int = BATCH_BYTES_TARGET) -> None:
        self._write = write
        self._target = batch_bytes_target
        self._unfinished: dict[int, _Unfinished] = {}
        self._scratch_bytes = 0
        self._now_ms = TimestampMs(0)

    def add(
        self,
        columns: RecordColumns,
        chosen: ChosenPlaces,
        style_of: Callable[[int], BatchStyle],
    ) -> None:
        """Encode all rows. `style_of` returns the style of a place's batches."""
        self._now_ms = columns.now_ms
        for place, first, stop in chosen.runs():
            batch = self._unfinished.get(place)
            if batch is None:
                batch = self._unfinished[place] = _Unfinished(style_of(place), self._target)
                self._scratch_bytes += len(batch.scratch)
            self._encode(place, batch, columns, chosen, first, stop)
        if self._scratch_bytes > _WAITING_BYTES_MAX:
            self.finish()

    def finish(self) -> None:
        """Pass on the batches that are not full."""
        for place, batch in self._unfinished.items():
            self._hand_over(place, batch)
        self._unfinished.clear()
        self._scratch_bytes = 0

    def _encode(
        self,
        place: int,
        batch: _Unfinished,
        columns: RecordColumns,
        chosen: ChosenPlaces,
        first: int,
        stop: int,
    ) -> None:
        while first < stop:
            following, end, base, largest, needed = kernels.encode_rows(
                chosen.rows, first, stop, columns, batch
            )
            batch.record_count += following - first
            batch.end, batch.base_timestamp, batch.max_timestamp = end, base, largest
            first = following
            if first < stop:
                self._make_room(place, batch, needed)

    def _make_room(self, place: int, batch: _Unfinished, needed: int) -> None:
        """Make room for `needed` more bytes: grow the batch, or begin another."""
        limit = batch.limit
        before = len(batch.scratch)
        if batch.end + needed > limit and batch.record_count:
            self._hand_over(place, batch)
            return
        if not batch.record_count and HEADER_SIZE + needed > limit:
            # A record larger than a usual batch gets a batch of its own.
            size = HEADER_SIZE + needed
            if batch.style.codec is Codec.NONE and size > batch.style.bytes_max:
                raise RecordTooLargeError(size=size, limit=batch.style.bytes_max)
            limit = size
        wanted = max(2 * before, batch.end + needed)
        batch.scratch.extend(bytes(min(wanted, limit) - before))
        self._scratch_bytes += len(batch.scratch) - before

    def _hand_over(self, place: int, batch: _Unfinished) -> None:
        if not batch.record_count:
            return
        built = finish_batch(
            batch.scratch,
            batch.end,
            batch.record_count,
            batch.base_timestamp,
            batch.max_timestamp,
            self._now_ms,
            batch.style,
        )
        self._write(place, built.data)
        del built  # it shares the buffer, which may have to grow
        batch.clear()
        if len(batch.scratch) > batch.limit:
            # Otherwise the records after a very large one would form a batch of the same size.
            self._scratch_bytes -= len(batch.scratch) - batch.limit
            batch.scratch = bytearray(batch.limit)
