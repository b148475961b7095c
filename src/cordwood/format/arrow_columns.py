"""Records as Arrow columns, copied once, from the bytes of batches into Arrow's buffers.

    offset      int64
    timestamp   timestamp[ms, UTC]
    key         binary, null if the record has none
    value       binary, null for a tombstone
    headers     list<struct<key: string, value: binary>>

`WordColumn`, `BinaryColumn` and `header_column` are the only code that fills Arrow's buffers from
records. Two classes decide when a record batch is complete, because their readers need different
sizes: `ArrowColumns` here returns each run as it is, for `scan`, and joins only small runs; Spark's
`ArrowRows` fills batches of a fixed number of rows, across runs, and adds Spark's constant columns.

pyarrow takes most of a second to import, so code imports this module only when Arrow is wanted.
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from cordwood.errors import ConfigError
from cordwood.format import kernel_tables as tables
from cordwood.format import record_table
from cordwood.format.batch import RecordRun
from cordwood.quantities import MIB

COLUMN_NAMES: Final = ("offset", "timestamp", "key", "value", "headers")

_HEADER_TYPE: Final = pa.struct(
    [pa.field("key", pa.string(), False), pa.field("value", pa.binary())]
)
_TYPES: Final[dict[str, pa.DataType]] = {
    "offset": pa.int64(),
    "timestamp": pa.timestamp("ms", tz="UTC"),
    "key": pa.binary(),
    "value": pa.binary(),
    "headers": pa.list_(pa.field("item", _HEADER_TYPE, False)),
}
_NO_HEADERS: Final = pa.nulls(0, _HEADER_TYPE)  # pa.array would import pandas, if installed
_NEVER_NULL: Final = ("offset", "timestamp", "headers")

# A run of records this large is a record batch by itself; smaller ones are joined.
_ROWS_ENOUGH: Final = 8_192
_BYTES_ENOUGH: Final = 1 * MIB


def arrow_schema(columns: Sequence[str] = COLUMN_NAMES) -> pa.Schema:
    """The schema of `scan`, or of the given columns; at least one is required."""
    if not columns:
        raise ConfigError("columns", "()", f"must be some of {', '.join(COLUMN_NAMES)}")
    for name in columns:
        if name not in _TYPES:
            raise ConfigError("columns", name, f"must be among {', '.join(COLUMN_NAMES)}")
    return pa.schema([pa.field(n, _TYPES[n], n not in _NEVER_NULL) for n in columns])


class ArrowColumns:
    """Turns runs of records into record batches that are not too small."""

    def __init__(self, columns: Sequence[str] = COLUMN_NAMES) -> None:
        self._schema = arrow_schema(columns)
        self._pieces: list[pa.RecordBatch] = []
        self._rows = 0
        self._bytes = 0

    def add(self, run: RecordRun) -> list[pa.RecordBatch]:
        """Add a run; return the record batches that are ready, in order."""
        piece = pa.RecordBatch.from_arrays(
            [_column(name, run) for name in self._schema.names], schema=self._schema
        )
        if piece.num_rows >= _ROWS_ENOUGH or piece.nbytes >= _BYTES_ENOUGH:
            return [*self.take(), piece]
        self._pieces.append(piece)
        self._rows += piece.num_rows
        self._bytes += piece.nbytes
        if self._rows >= _ROWS_ENOUGH or self._bytes >= _BYTES_ENOUGH:
            return self.take()
        return []

    def take(self) -> list[pa.RecordBatch]:
        """The rows collected and not yet returned, as one record batch or none."""
        pieces, self._pieces = self._pieces, []
        self._rows = self._bytes = 0
        if len(pieces) <= 1:
            return pieces
        return pa.Table.from_batches(pieces).combine_chunks().to_batches()


def _column(name: str, run: RecordRun) -> "pa.Array[Any]":
    match name:
        case "offset" | "timestamp":
            field = tables.R_OFFSET if name == "offset" else tables.R_TIMESTAMP
            words = WordColumn(field, _TYPES[name], rows_max=len(run))
            words.add(run, 0)
            return words.take(len(run))
        case "key":
            return key_column(run)
        case "value":
            return _binary(run, tables.R_VALUE_POSITION)
        case _:
            return header_column(run)


def key_column(run: RecordRun) -> "pa.Array[Any]":
    """The keys of a run."""
    return _binary(run, tables.R_KEY_POSITION)


def _binary(run: RecordRun, field: int) -> "pa.Array[Any]":
    column = BinaryColumn(field, rows_max=len(run), bytes_max=0)
    column.add(run, 0)
    return column.take(len(run))


class WordColumn:
    """One int64 field of many records, gathered into Arrow's buffers."""

    size = 0  # bytes that depend on the records

    def __init__(self, field: int, kind: pa.DataType, *, rows_max: int) -> None:
        self._field = field
        self._kind = kind
        self._rows_max = rows_max

    def add(self, run: RecordRun, row: int) -> None:
        """Copy all records of `run` to the rows from `row` on; row 0 begins a new array."""
        if row == 0:
            self._buffer = pa.allocate_buffer(8 * self._rows_max)
            self._words = memoryview(self._buffer).cast("B").cast("q")
        record_table.take_words(run, self._field, self._words, row)

    def take(self, rows: int) -> "pa.Array[Any]":
        """The first `rows` rows."""
        return pa.Array.from_buffers(self._kind, rows, [None, self._buffer], null_count=0)


class BinaryColumn:
    """The keys or the values of many records, gathered into Arrow's buffers.

    `size` bytes of `data` are used. When they run out, room is made for as many records like those
    of the present run as fit `rows_max` rows, or `bytes_max` bytes.
    """

    def __init__(self, field: int, *, rows_max: int, bytes_max: int) -> None:
        self._field = field
        self._rows_max = rows_max
        self._bytes_max = bytes_max
        self._room = 0
        self.size = 0

    def add(self, run: RecordRun, row: int) -> None:
        """Copy all records of `run` to the rows from `row` on; row 0 begins a new array."""
        if row == 0:
            self._begin()
        span = _column_span(run, self._field)
        needed = self.size + span
        if needed > self._room:
            used = self.data[: self.size]
            likely = min(span * self._rows_max // max(len(run), 1), self._bytes_max + span)
            self._allocate(max(needed, 2 * self._room, likely))
            self.data[: self.size] = used
        self.size, nulls = record_table.take_binary(run, self._field, self, row)
        self._nulls += nulls

    def _begin(self) -> None:
        self._ends = pa.allocate_buffer(4 * (self._rows_max + 1))
        self.ends = memoryview(self._ends).cast("B").cast("i")
        self.ends[0] = 0
        self.validity = bytearray((self._rows_max + 7) // 8)
        self._nulls = 0
        self.size = 0
        # The next array will be about as large, unless the last one was out of all proportion.
        self._allocate(min(self._room, 2 * self._bytes_max))

    def _allocate(self, room: int) -> None:
        self._buffer = pa.allocate_buffer(room)
        self._room = room
        self.data = memoryview(self._buffer).cast("B")

    def take(self, rows: int) -> "pa.Array[Any]":
        """The first `rows` rows."""
        validity = pa.py_buffer(self.validity) if self._nulls else None
        buffers = [validity, self._ends, self._buffer.slice(0, self.size)]
        self.size = 0
        return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count=self._nulls)


def _column_span(run: RecordRun, field: int) -> int:
    """Bytes that certainly hold a column: from its first item to the end of its last.

    Keys, values and headers lie one behind the other, so no column holds more than the run.
    """
    if run.start == run.end:
        return 0
    first = run.table[run.start * tables.RECORD_ROW + field]
    last = (run.end - 1) * tables.RECORD_ROW + field
    return max(run.table[last] + max(run.table[last + 1], 0) - first, 0)


def _text(names: "pa.Array[Any]") -> "pa.Array[Any]":
    """Header names as strings; bytes that are not UTF-8 are replaced, as in `Record.headers`."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        found = [(name or b"").decode("utf-8", "replace") for name in names.to_pylist()]
        replaced: pa.Array[Any] = pa.array(found, pa.string())
        return replaced


def header_column(run: RecordRun) -> "pa.Array[Any]":
    """The headers of a run's records; an empty list for a record without headers."""
    count = len(run)
    total = record_table.header_totals(run.table, run.start, run.end)
    if not total:
        ends = pa.py_buffer(bytes(4 * (count + 1)))
        return pa.Array.from_buffers(
            _TYPES["headers"], count, [None, ends], null_count=0, children=[_NO_HEADERS]
        )
    ends = pa.allocate_buffer(4 * (count + 1))
    ends_view = memoryview(ends).cast("i")
    ends_view[0] = 0
    headers = RecordRun(run.data, array("q", bytes(8 * tables.RECORD_ROW * total)), 0, total)
    record_table.take_headers(run, ends_view, headers.table)
    names = _text(_binary(headers, tables.R_KEY_POSITION))
    values = _binary(headers, tables.R_VALUE_POSITION)
    items = pa.StructArray.from_arrays([names, values], fields=list(_HEADER_TYPE))
    return pa.Array.from_buffers(
        _TYPES["headers"], count, [None, ends], null_count=0, children=[items]
    )
