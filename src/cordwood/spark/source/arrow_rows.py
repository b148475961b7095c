"""Records as the rows that Spark expects: Arrow record batches with Kafka's columns.

The columns of `format.arrow_columns` copy each field once, from the bytes of the log into the
buffers of the record batch. A column with the same value in every row is made once and sliced.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.format import kernel_tables as tables
from cordwood.format.arrow_columns import BinaryColumn, WordColumn, header_column
from cordwood.format.batch import RecordRun
from cordwood.quantities import INT64_MAX, MIB

# Measured: Spark is fastest with batches of 10,000 rows or more; far larger ones gain nothing.
ROWS_PER_BATCH: Final = 20_000
# A batch of this size is complete, however few its rows: this bounds a task's memory. Measured:
# buffers of more than a few MiB return to the system after each batch, and faulting them in again
# costs more than smaller batches do.
BYTES_PER_BATCH: Final = 4 * MIB

_HEADER: Final = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))
_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_MILLISECONDS: Final = pa.timestamp("ms", tz="UTC")
_MILLISECONDS_MAX: Final = INT64_MAX // 1000  # the last that fits microseconds
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
    """The only schema that Spark accepts for these columns."""
    return pa.schema([pa.field(name, _TYPES[name]) for name in columns])


class ArrowRows:
    """Turns runs of records of one partition into record batches. For one thread.

    `format.arrow_columns` says why this is not `ArrowColumns`.
    """

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
        """Add a run; yield the record batches that it completes. The caller must exhaust it."""
        start, end = run.start, run.end
        while start < end:
            taken = min(end - start, self._rows_max - self._rows)
            piece = RecordRun(run.data, run.table, start, start + taken, run.is_log_append_time)
            for column in self._columns:
                column.add(piece, self._rows)
            start += taken
            self._rows += taken
            is_large = sum(column.size for column in self._columns) >= self._bytes_max
            if self._rows == self._rows_max or is_large:
                yield self._take()

    def rest(self) -> list[pa.RecordBatch]:
        """The rows added and not yet returned, as one record batch or none."""
        return [self._take()] if self._rows else []

    def _take(self) -> pa.RecordBatch:
        rows, self._rows = self._rows, 0
        arrays = [column.take(rows) for column in self._columns]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


class _Column(Protocol):
    """One column of the record batch that is being filled."""

    @property
    def size(self) -> int:
        """Bytes that depend on the records; 0 where their number follows from the rows."""
        ...

    def add(self, run: RecordRun, row: int) -> None:
        """Copy all records of `run` to the rows from `row` on; row 0 begins a new array."""
        ...

    def take(self, rows: int) -> "pa.Array[Any]":
        """The first `rows` rows."""
        ...


def _column(name: str, topic: str, partition: int, rows_max: int, bytes_max: int) -> _Column:
    match name:
        case "key":
            return BinaryColumn(tables.R_KEY_POSITION, rows_max=rows_max, bytes_max=bytes_max)
        case "value":
            return BinaryColumn(tables.R_VALUE_POSITION, rows_max=rows_max, bytes_max=bytes_max)
        case "topic":
            return _Same(pa.scalar(topic))
        case "partition":
            return _Same(pa.scalar(partition, pa.int32()))
        case "offset":
            return WordColumn(tables.R_OFFSET, pa.int64(), rows_max=rows_max)
        case "timestamp":
            return _Times(rows_max)
        case "timestampType":
            return _TimestampTypes()
        case _:
            return _Headers()


class _Same:
    """The same value in every row. Keeps as many as the largest batch so far had rows."""

    size = 0

    def __init__(self, value: Any) -> None:  # a scalar of any of Arrow's types
        self._value = value
        self._values: pa.Array[Any] = pa.repeat(value, 0)

    def add(self, run: RecordRun, row: int) -> None:
        pass

    def take(self, rows: int) -> "pa.Array[Any]":
        if rows > len(self._values):
            self._values = pa.repeat(self._value, rows)
        return self._values.slice(0, rows)


class _Times:
    """Kafka's milliseconds as Spark's microseconds."""

    size = 0

    def __init__(self, rows_max: int) -> None:
        self._words = WordColumn(tables.R_TIMESTAMP, _MILLISECONDS, rows_max=rows_max)

    def add(self, run: RecordRun, row: int) -> None:
        self._words.add(run, row)

    def take(self, rows: int) -> "pa.Array[Any]":
        return spark_times(self._words.take(rows))


def spark_times(times: "pa.Array[Any]") -> "pa.Array[Any]":
    """Milliseconds, as timestamps or as numbers, in Spark's microseconds."""
    found: pa.Array[Any] = times.cast(_MILLISECONDS)
    try:
        return found.cast(_TIMESTAMP)
    except pa.ArrowInvalid:
        return _bounded(found).cast(_TIMESTAMP)


def _bounded(times: "pa.Array[Any]") -> "pa.Array[Any]":
    """Times within Spark's range; a later or earlier one becomes the nearest end of the range."""
    limits = [pa.scalar(limit) for limit in (_MILLISECONDS_MAX, -_MILLISECONDS_MAX)]
    words: Any = pc.min_element_wise(times.cast(pa.int64()), limits[0])
    bounded: pa.Array[Any] = pc.max_element_wise(words, limits[1]).cast(_MILLISECONDS)
    return bounded


class _TimestampTypes:
    """0 for a time set by the producer, 1 for one set by the log; the same for a whole run."""

    size = 0

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


class _Headers:
    """Lists of headers; null for a record without headers, as in Spark's Kafka source."""

    def __init__(self) -> None:
        self._pieces: list[pa.Array[Any]] = []
        self.size = 0

    def add(self, run: RecordRun, row: int) -> None:
        piece = header_column(run)
        self._pieces.append(piece)
        self.size += piece.nbytes

    def take(self, rows: int) -> "pa.Array[Any]":
        pieces, self._pieces = self._pieces, []
        self.size = 0
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
