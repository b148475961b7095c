"""Records as Arrow columns, copied directly from the bytes of batches.

    offset      int64
    timestamp   timestamp[ms, UTC]
    key         binary, null if the record has none
    value       binary, null for a tombstone
    headers     list<struct<key: string, value: binary>>

pyarrow takes most of a second to import, so only code that returns Arrow data imports this module.
"""

from array import array
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from cordwood.errors import ConfigError
from cordwood.format import kernel_tables as tables
from cordwood.format import kernels
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

# A run with this many records becomes a record batch of its own; smaller runs are merged.
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
    """Turns runs of records into record batches of useful size."""

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
        """The records not returned yet, as one record batch or none."""
        pieces, self._pieces = self._pieces, []
        self._rows = self._bytes = 0
        if len(pieces) <= 1:
            return pieces
        return pa.Table.from_batches(pieces).combine_chunks().to_batches()


def _column(name: str, run: RecordRun) -> "pa.Array[Any]":
    match name:
        case "offset":
            return _words(run, tables.R_OFFSET, _TYPES["offset"])
        case "timestamp":
            return _words(run, tables.R_TIMESTAMP, _TYPES["timestamp"])
        case "key":
            return key_column(run)
        case "value":
            return _binary(run, run.table, run.start, run.end, tables.R_VALUE_POSITION, pa.binary())
        case _:
            return header_column(run)


def key_column(run: RecordRun) -> "pa.Array[Any]":
    """The keys of a run."""
    return _binary(run, run.table, run.start, run.end, tables.R_KEY_POSITION, pa.binary())


def _words(run: RecordRun, field: int, kind: pa.DataType) -> "pa.Array[Any]":
    count = len(run)
    buffer = pa.allocate_buffer(8 * count)
    kernels.take_words(run.table, run.start, run.end, field, memoryview(buffer).cast("q"), 0)
    return pa.Array.from_buffers(kind, count, [None, buffer], null_count=0)


def _binary(
    run: RecordRun, table: "array[int]", start: int, end: int, field: int, kind: pa.DataType
) -> "pa.Array[Any]":
    count = end - start
    ends = pa.allocate_buffer(4 * (count + 1))
    ends_view = memoryview(ends).cast("i")
    ends_view[0] = 0
    validity = bytearray((count + 7) // 8)
    # Keys, values and headers are consecutive, so no column is larger than the run.
    data = pa.allocate_buffer(column_span(table, start, end, field))
    size, nulls = kernels.take_binary(
        run.data, table, start, end, field, ends_view, validity, memoryview(data).cast("B"), 0, 0
    )
    return pa.Array.from_buffers(
        kind,
        count,
        [pa.py_buffer(validity) if nulls else None, ends, data.slice(0, size)],
        null_count=nulls,
    )


def column_span(table: "array[int]", start: int, end: int, field: int) -> int:
    """An upper bound for the bytes of a column: from its first item to the end of its last."""
    if start == end:
        return 0
    first = table[start * tables.RECORD_ROW + field]
    last = (end - 1) * tables.RECORD_ROW + field
    return max(table[last] + max(table[last + 1], 0) - first, 0)


def _text(names: "pa.Array[Any]") -> "pa.Array[Any]":
    """Header names as strings; invalid UTF-8 is replaced, as in `Record.headers`."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        found = [(name or b"").decode("utf-8", "replace") for name in names.to_pylist()]
        replaced: pa.Array[Any] = pa.array(found, pa.string())
        return replaced


def header_column(run: RecordRun) -> "pa.Array[Any]":
    """The headers of a run's records; an empty list for a record without headers."""
    count = len(run)
    total = kernels.header_totals(run.table, run.start, run.end)
    if not total:
        ends = pa.py_buffer(bytes(4 * (count + 1)))
        return pa.Array.from_buffers(
            _TYPES["headers"], count, [None, ends], null_count=0, children=[_NO_HEADERS]
        )
    ends = pa.allocate_buffer(4 * (count + 1))
    ends_view = memoryview(ends).cast("i")
    ends_view[0] = 0
    table = array("q", bytes(8 * tables.RECORD_ROW * total))
    kernels.take_headers(run.data, run.table, run.start, run.end, ends_view, table, 0, 0)
    names = _text(_binary(run, table, 0, total, tables.R_KEY_POSITION, pa.binary()))
    values = _binary(run, table, 0, total, tables.R_VALUE_POSITION, pa.binary())
    items = pa.StructArray.from_arrays([names, values], fields=list(_HEADER_TYPE))
    return pa.Array.from_buffers(
        _TYPES["headers"], count, [None, ends], null_count=0, children=[items]
    )
