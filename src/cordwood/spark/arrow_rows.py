"""Records as the rows Spark expects: Arrow record batches of Kafka's columns.

Kernels copy each field once, from the bytes of the log into the buffers of the record batch.
Columns that hold the same value in every row are made once and sliced.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.format import kernel_tables as tables
from cordwood.format import kernels
from cordwood.format.arrow_columns import column_span, header_column
from cordwood.format.batch import RecordRun
from cordwood.quantities import INT64_MAX, MIB

# Measured: Spark takes batches of 10,000 rows and more best, and far larger ones no better.
ROWS_PER_BATCH: Final = 20_000
# A batch is handed on when it holds this much, however few its rows: bounds a task's memory.
# Measured: memory of more than a few MiB goes back to the system with each batch, and touching
# it anew costs more than smaller batches do.
BYTES_PER_BATCH: Final = 4 * MIB

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
_MILLISECONDS_MAX: Final = INT64_MAX // 1000  # that are microseconds too
_TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": _TIMESTAMP,
    "timestampType": pa.int32(),
    "headers": _HEADERS,
}


def arrow_schema(columns: Sequence[str]) -> pa.Schema:
    """The one schema that Spark accepts for these columns."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


class ArrowRows:
    """Turns runs of records of one partition into record batches. For one thread."""

    def __init__(
        self,
        columns: Sequence[str],
        *,
        topic: str,
        partition: int,
        rows_max: int = ROWS_PER_BATCH,
        bytes_max: int = BYTES_PER_BATCH,
    ) -> None:
        self._schema = arrow_schema(columns)
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._rows = 0
        self._columns = [_column(name, topic, partition, rows_max, bytes_max) for name in columns]

    def add(self, run: RecordRun) -> Iterator[pa.RecordBatch]:
        """Take a run in; yields the record batches that are complete. Exhaust it."""
        start, end = run.start, run.end
        while start < end:
            taken = min(end - start, self._rows_max - self._rows)
            piece = RecordRun(run.data, run.table, start, start + taken, run.is_log_append_time)
            for column in self._columns:
                column.add(piece, self._rows)
            start += taken
            self._rows += taken
            is_large = sum(column.size_bytes for column in self._columns) >= self._bytes_max
            if self._rows == self._rows_max or is_large:
                yield self._take()

    def rest(self) -> Iterator[pa.RecordBatch]:
        """What was taken in and not yet returned."""
        if self._rows:
            yield self._take()

    def _take(self) -> pa.RecordBatch:
        rows, self._rows = self._rows, 0
        arrays = [column.take(rows) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Column(ABC):
    """One column of the batch under way."""

    size_bytes = 0  # of what varies in size

    @abstractmethod
    def add(self, run: RecordRun, row: int) -> None:
        """Take in all records of `run` as the rows from `row` on."""

    @abstractmethod
    def take(self, rows: int) -> "pa.Array[Any]":
        """The first `rows` rows; begins anew."""


def _column(name: str, topic: str, partition: int, rows_max: int, bytes_max: int) -> _Column:
    match name:
        case "key":
            return _Bytes(tables.R_KEY_POSITION, rows_max, bytes_max)
        case "value":
            return _Bytes(tables.R_VALUE_POSITION, rows_max, bytes_max)
        case "topic":
            return _Same(pa.scalar(topic))
        case "partition":
            return _Same(pa.scalar(partition, pa.int32()))
        case "offset":
            return _Words(tables.R_OFFSET, rows_max)
        case "timestamp":
            return _Times(rows_max)
        case "timestampType":
            return _TimestampTypes()
        case _:
            return _Headers()


class _Same(_Column):
    """The same value in every row. As many as the largest batch so far had rows are kept."""

    def __init__(self, value: Any) -> None:  # a scalar of any of Arrow's types
        self._value = value
        self._values: pa.Array[Any] = pa.repeat(value, 0)

    def add(self, run: RecordRun, row: int) -> None:
        pass

    def take(self, rows: int) -> "pa.Array[Any]":
        if rows > len(self._values):
            self._values = pa.repeat(self._value, rows)
        return self._values.slice(0, rows)


class _Words(_Column):
    """A number of the record table."""

    _KIND: pa.DataType = pa.int64()

    def __init__(self, field: int, rows_max: int) -> None:
        self._field = field
        self._rows_max = rows_max
        self._renew()

    def _renew(self) -> None:
        self._buffer = pa.allocate_buffer(8 * self._rows_max)
        self._words = memoryview(self._buffer).cast("b").cast("q")

    def add(self, run: RecordRun, row: int) -> None:
        kernels.take_words(run.table, run.start, run.end, self._field, self._words, row)

    def take(self, rows: int) -> "pa.Array[Any]":
        buffer = self._buffer
        self._renew()
        return pa.Array.from_buffers(self._KIND, rows, [None, buffer], null_count=0)


class _Times(_Words):
    """Milliseconds, as Kafka has them, to microseconds, as Spark has them."""

    _KIND = _MILLISECONDS

    def __init__(self, rows_max: int) -> None:
        super().__init__(tables.R_TIMESTAMP, rows_max)

    def take(self, rows: int) -> "pa.Array[Any]":
        times = super().take(rows)
        try:
            return times.cast(_TIMESTAMP)
        except pa.ArrowInvalid:
            return _bounded(times).cast(_TIMESTAMP)


def _bounded(times: "pa.Array[Any]") -> "pa.Array[Any]":
    """Times that Spark can hold: the last of them stands for any later one a producer wrote."""
    limits = [pa.scalar(limit) for limit in (_MILLISECONDS_MAX, -_MILLISECONDS_MAX)]
    words: Any = pc.min_element_wise(times.cast(pa.int64()), limits[0])
    bounded: pa.Array[Any] = pc.max_element_wise(words, limits[1]).cast(_MILLISECONDS)
    return bounded


class _Bytes(_Column):
    """Keys or values."""

    def __init__(self, field: int, rows_max: int, bytes_max: int) -> None:
        self._field = field
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._renew(0)

    def _renew(self, room: int) -> None:
        self._ends = pa.allocate_buffer(4 * (self._rows_max + 1))
        self._ends_view = memoryview(self._ends).cast("b").cast("i")
        self._ends_view[0] = 0
        self._validity = bytearray((self._rows_max + 7) // 8)
        self._nulls = 0
        self.size_bytes = 0
        self._make_room(room)

    def _make_room(self, room: int) -> None:
        self._data = pa.allocate_buffer(room)
        self._room = room
        self._view = memoryview(self._data).cast("B")

    def add(self, run: RecordRun, row: int) -> None:
        span = column_span(run.table, run.start, run.end, self._field)
        needed = self.size_bytes + span
        if needed > self._room:
            used = self._view[: self.size_bytes]
            self._make_room(max(needed, 2 * self._room, self._likely(span, len(run))))
            self._view[: self.size_bytes] = used
        self.size_bytes, nulls = kernels.take_binary(
            run.data,
            run.table,
            run.start,
            run.end,
            self._field,
            self._ends_view,
            self._validity,
            self._view,
            row,
            self.size_bytes,
        )
        self._nulls += nulls

    def _likely(self, span: int, rows: int) -> int:
        """Room for a whole batch of records like these, or until one is full by its bytes."""
        return min(span * self._rows_max // rows, self._bytes_max + span)

    def take(self, rows: int) -> "pa.Array[Any]":
        validity = pa.py_buffer(self._validity) if self._nulls else None
        array: pa.Array[Any] = pa.Array.from_buffers(
            pa.binary(),
            rows,
            [validity, self._ends, self._data.slice(0, self.size_bytes)],
            null_count=self._nulls,
        )
        # The next batch will be about as large, unless this one was out of all proportion.
        self._renew(min(self._room, 2 * self._bytes_max))
        return array


class _TimestampTypes(_Column):
    """0 for a time the producer gave, 1 for one the log gave: the same for all of a run."""

    def __init__(self) -> None:
        self._kinds = [_Same(pa.scalar(kind, pa.int32())) for kind in (0, 1)]
        self._pieces: list[tuple[int, int]] = []

    def add(self, run: RecordRun, row: int) -> None:
        kind = int(run.is_log_append_time)
        if self._pieces and self._pieces[-1][0] == kind:
            self._pieces[-1] = (kind, self._pieces[-1][1] + len(run))
        else:
            self._pieces.append((kind, len(run)))

    def take(self, rows: int) -> "pa.Array[Any]":
        pieces, self._pieces = self._pieces, []
        arrays = [self._kinds[kind].take(count) for kind, count in pieces]
        return arrays[0] if len(arrays) == 1 else pa.concat_arrays(arrays)


class _Headers(_Column):
    """Lists of headers; null, not empty, for a record without, as Spark's source has it."""

    def __init__(self) -> None:
        self._pieces: list[pa.Array[Any]] = []

    def add(self, run: RecordRun, row: int) -> None:
        piece = header_column(run)
        self._pieces.append(piece)
        self.size_bytes += piece.nbytes

    def take(self, rows: int) -> "pa.Array[Any]":
        pieces, self._pieces = self._pieces, []
        self.size_bytes = 0
        lists: Any = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        has_some = pc.greater(lists.value_lengths(), pa.scalar(0, pa.int32()))
        items = pa.StructArray.from_arrays(lists.values.flatten(), fields=list(_HEADER))
        return pa.Array.from_buffers(
            _HEADERS,
            rows,
            [has_some.buffers()[1], lists.buffers()[1]],
            null_count=rows - has_some.true_count,
            children=[items],
        )
