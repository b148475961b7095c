"""Evaluates a condition on parsed records, in columns, and takes the records that match."""

from array import array
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from cordwood.format import kernel_tables as tables
from cordwood.format.arrow_columns import WordColumn, key_column
from cordwood.format.batch import BatchDecoder, RecordRun
from cordwood.log.reading.record_walk import BatchFilter
from cordwood.quantities import INT64_MAX
from cordwood.spark.where.condition import (
    AllOf,
    AnyOf,
    Column,
    Comparison,
    Condition,
    KeyNullness,
    Membership,
    Operator,
)

_ROW_BYTES: Final = 8 * tables.RECORD_ROW
_MILLISECONDS_MAX: Final = INT64_MAX // 1000  # later times are shown as the last that fits
_COMPARE: Final[dict[Operator, Any]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}

Mask = Any  # a BooleanArray without nulls, or a bool for all rows


def rows_where(run: RecordRun, condition: Condition) -> RecordRun | None:
    """The records of `run` that match, in order; None if there are none."""
    mask = _mask(_Columns(run), condition)
    if isinstance(mask, bool):
        return run if mask else None
    matching = mask.true_count
    if matching in (0, len(run)):
        return run if matching else None
    return taken_rows(run, pc.indices_nonzero(mask))


def taken_rows(run: RecordRun, rows: "pa.Array[Any]") -> RecordRun:
    """The records of `run` at these places, which are counted from its start."""
    words = pa.Array.from_buffers(
        pa.binary(_ROW_BYTES), run.end, [None, pa.py_buffer(run.table)]
    ).slice(run.start)
    taken = words.take(rows)
    buffer = taken.buffers()[1]
    assert buffer is not None, run
    chosen = array("q")
    chosen.frombytes(memoryview(buffer)[: len(taken) * _ROW_BYTES])
    return RecordRun(run.data, chosen, 0, len(taken), run.is_log_append_time)


class _Columns:
    """The columns of a run that a condition needs, each made once."""

    def __init__(self, run: RecordRun) -> None:
        self._run = run
        self._made: dict[str, Any] = {}

    def __getitem__(self, column: Column) -> Any:
        if column not in self._made:
            self._made[column] = self._make(column)
        return self._made[column]

    def _make(self, column: Column) -> Any:
        match column:
            case "key":
                return key_column(self._run)
            case "offset":
                return self._words(tables.R_OFFSET)
            case _:
                return _microseconds(self._words(tables.R_TIMESTAMP))

    def _words(self, field: int) -> "pa.Array[Any]":
        words = WordColumn(field, pa.int64(), rows_max=len(self._run))
        words.add(self._run, 0)
        return words.take(len(self._run))


def _microseconds(milliseconds: Any) -> Any:
    """As in the column `timestamp`, where a time outside of Spark's range is the nearest in it."""
    thousand = pa.scalar(1000, pa.int64())
    try:
        return pc.multiply_checked(milliseconds, thousand)
    except pa.ArrowInvalid:
        upper = pa.scalar(_MILLISECONDS_MAX, pa.int64())
        lower = pa.scalar(-_MILLISECONDS_MAX, pa.int64())
        bounded = pc.max_element_wise(pc.min_element_wise(milliseconds, upper), lower)
        return pc.multiply(bounded, thousand)


def _mask(columns: _Columns, condition: Condition) -> Mask:
    match condition:
        case AllOf(terms=terms):
            return _combined(columns, terms, decides=False)
        case AnyOf(terms=terms):
            return _combined(columns, terms, decides=True)
        case Comparison(column=column, operator=found, value=value):
            return _COMPARE[found](columns[column], _scalar(value)).fill_null(False)
        case Membership(column=column, values=values, is_in=is_in):
            values_array = pa.array(values, _type_of(column))
            inside = pc.is_in(columns[column], value_set=values_array)
            if is_in:
                return inside
            return pc.and_(pc.invert(inside), columns[column].is_valid())
        case KeyNullness(is_null=is_null):
            return columns["key"].is_null() if is_null else columns["key"].is_valid()


def _combined(columns: _Columns, terms: tuple[Condition, ...], *, decides: bool) -> Mask:
    """AND if False decides, OR if True does. A term that decides every row ends it."""
    combine = pc.or_ if decides else pc.and_
    result: Mask = not decides
    for term in terms:
        mask = _mask(columns, term)
        if isinstance(mask, bool):
            if mask == decides:
                return decides
            continue
        result = mask if isinstance(result, bool) else combine(result, mask)
        if result.true_count == (len(result) if decides else 0):
            return decides
    return result


def _scalar(value: int | bytes) -> Any:
    return pa.scalar(value, pa.binary() if isinstance(value, bytes) else pa.int64())


def _type_of(column: Column) -> pa.DataType:
    return pa.binary() if column == "key" else pa.int64()


class NewerBatches:
    """Leaves out batches whose records are all older than a time, by their headers.

    A filter for `walk_runs`; `hidden` leaves out batches of aborted transactions as well.
    """

    def __init__(self, earliest_ms: int, hidden: BatchFilter | None) -> None:
        self._earliest_ms = earliest_ms
        self._hidden = hidden

    def left_over(self, decoder: BatchDecoder, first: int, end: int) -> list[tuple[int, int]]:
        """The batches of [first, end) to parse, as ranges of indexes, in order."""
        row, column = tables.BATCH_ROW, tables.B_MAX_TIMESTAMP
        newest = decoder.rows[first * row + column : end * row : row]
        ranges: list[tuple[int, int]] = []
        start = None
        for index, timestamp in enumerate([*newest, self._earliest_ms - 1], start=first):
            if timestamp >= self._earliest_ms:
                start = index if start is None else start
            elif start is not None:
                ranges.append((start, index))
                start = None
        if self._hidden is None:
            return ranges
        return [part for found in ranges for part in self._hidden.left_over(decoder, *found)]
