"""Times and dates that tables can have: the years 1 to 9999, as in Spark's SQL.

Avro, Protobuf and JSON can hold others. Files can too, but Python programs that read them fail at
the first one, so a value with such a time does not fit.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cordwood.spark.decoding.decoded_values import DecodedValues, Decoder
from cordwood.spark.decoding.type_text import children_of, fields_of
from cordwood.value_class import replace

DAYS: Final = (-719_162, 2_932_896)  # since 1970: 0001-01-01 to 9999-12-31
_DAY_US: Final = 86_400_000_000
_MICROS: Final = (DAYS[0] * _DAY_US, (DAYS[1] + 1) * _DAY_US - 1)
OUTSIDE: Final = "is a time outside of the years 1 to 9999"


def has_times(kind: pa.DataType) -> bool:
    return pa.types.is_temporal(kind) or any(map(has_times, children_of(kind)))


class TimeLimits:
    """A decoder whose values have no times that tables cannot have. For one thread."""

    def __init__(self, decoder: Decoder) -> None:
        self._decoder = decoder

    @property
    def type(self) -> pa.DataType:
        return self._decoder.type

    def decode(self, values: "pa.Array[Any]") -> DecodedValues:
        found = self._decoder.decode(values)
        reasons: Any = found.reasons
        for rows, path in _outside(found.values, ""):
            mask = np.zeros(len(reasons), bool)
            mask[rows] = True
            told = pc.if_else(pa.array(mask), pa.scalar(f"{path} {OUTSIDE}"), _NOTHING)
            reasons = pc.coalesce(reasons, told)
        if reasons is found.reasons:
            return found
        kept = pc.if_else(reasons.is_null(), found.values, pa.scalar(None, found.values.type))
        return replace(found, values=kept, reasons=reasons)


_NOTHING: Final = pa.scalar(None, pa.string())


def _outside(array: Any, path: str) -> Iterator[tuple[Any, str]]:
    """The rows with a time outside of the limits, for each field that has some."""
    kind = array.type
    if not has_times(kind):
        return
    if pa.types.is_struct(kind):
        for field, column in zip(fields_of(kind), array.flatten(), strict=True):
            yield from _outside(column, f"{path}.{field.name}" if path else field.name)
    elif pa.types.is_list(kind) or pa.types.is_map(kind):
        items, parents = _items(array)
        for rows, inside in _outside(items, path):
            yield parents[rows], inside
    else:
        numbers = array.view(pa.int32() if pa.types.is_date(kind) else pa.int64())
        low, high = DAYS if pa.types.is_date(kind) else _MICROS
        ends: Any = pc.min_max(numbers)
        least, most = ends["min"].as_py(), ends["max"].as_py()
        if least is not None and not (low <= least and most <= high):
            there = np.asarray(numbers.is_valid())
            found = np.asarray(numbers.fill_null(0))
            yield np.flatnonzero(there & ((found < low) | (found > high))), path


def _items(array: Any) -> tuple[Any, Any]:
    """What lists or maps hold, and the row of each."""
    starts = np.asarray(array.offsets)
    counts = np.where(np.asarray(array.is_valid()), np.diff(starts), 0)
    rows = np.repeat(np.arange(len(array)), counts)
    places = np.arange(len(rows)) + np.repeat(starts[:-1] - np.cumsum(counts) + counts, counts)
    entries = array.values if pa.types.is_list(array.type) else array.items
    return entries.take(pa.array(places, pa.int64())), rows
