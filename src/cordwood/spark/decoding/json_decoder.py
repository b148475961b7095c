"""JSON objects as a struct column, a batch at a time.

Arrow's parser reads all values of a batch in one call. It takes a text of any number of objects and
does not say which came from which value: one value may hold two objects, or half of one that the
next completes. So a marker is put before each value: an object with a name that nobody can
guess. Rows and markers must alternate, and then each value is exactly one object.

If the parser refuses a batch, a kernel finds the values that it will probably not take
(`json_shape`). These are looked at one by one, which repairs them or gives a reason
(`json_repair`); the others are parsed together. If the parser refuses these too, they are cut into
parts until the refused ones are small. So a few misfits cost what they cost alone, and one more
pass over their batch.

A value fits if it is an object whose fields fit. Missing fields are null, and fields that the type
lacks are left out. With `looks_for_more` the type of such fields is reported.
"""

import base64
import secrets
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from cordwood.spark.decoding.decoded_values import (
    DecodedValues,
    MisfitError,
    scattered,
    short_reason,
)
from cordwood.spark.decoding.json_inference import infer_type, join_types
from cordwood.spark.decoding.json_repair import UnreadableError, repair_value
from cordwood.spark.decoding.json_shape import JsonShape
from cordwood.spark.decoding.required_fields import missing_fields
from cordwood.spark.decoding.type_casting import conformed, optional, with_values
from cordwood.spark.decoding.type_text import children_of, fields_of, list_of, struct_of

_FEW: Final = 32  # values that are worth looking at one by one
_PARTS: Final = 8
_CANNOT: Final = "the value does not fit the schema"
_Array = pa.Array


class JsonDecoder:
    """Decodes objects of one type. For one thread."""

    def __init__(self, kind: pa.StructType, *, looks_for_more: bool = False) -> None:
        self._wanted = kind
        self.type: pa.DataType = optional(kind)
        self._wire = _wire_type(self.type)
        self._is_plain = self._wire == self.type
        self._has_maps = _has_map(kind)
        self._has_decimals = _has(kind, pa.types.is_decimal)
        self._has_floats = _has(kind, pa.types.is_float32)
        self._looks_for_more = looks_for_more
        self._shape = JsonShape(self.type)  # type: ignore[arg-type]
        self._sifts_first = False  # after a batch with misfits: the next one has some too
        self._mark = f"cordwood-{secrets.token_hex(12)}"
        self._marker = f'\n{{"{self._mark}":true}}\n'.encode()
        self._schema = pa.schema([*fields_of(self._wire), pa.field(self._mark, pa.bool_())])

    def decode(self, values: "_Array[Any]") -> DecodedValues:
        work = _Work()
        rows = np.flatnonzero(np.asarray(values.is_valid()))
        there = values if len(rows) == len(values) else values.take(rows)
        if len(rows):
            self._solve(there, rows, work)
        decoded = work.values(self.type, len(values))
        reasons = work.reasons(len(values))
        faults = missing_fields(decoded, self._wanted)
        if faults is not None:
            reasons = pc.coalesce(reasons, faults)
            decoded = pc.if_else(reasons.is_null(), decoded, pa.scalar(None, self.type))
        return DecodedValues(values=decoded, reasons=reasons, found=work.found)

    def _solve(self, values: "_Array[Any]", rows: "np.ndarray[Any, Any]", work: "_Work") -> None:
        if self._has_maps:  # the parser does not know them
            self._repair(values, rows, work)
            return
        is_small = len(values) <= _FEW
        is_tried = is_small or not self._sifts_first
        if is_tried and self._is_taken(values, rows, work):
            return
        if is_small:
            self._repair(values, rows, work)
            return
        fits = self._shape.fitting(values)
        self._sifts_first = not fits.all()
        if self._sifts_first:
            self._repair(values.filter(pa.array(~fits)), rows[~fits], work)
            values, rows, is_tried = values.filter(pa.array(fits)), rows[fits], False
        if len(values) and (is_tried or not self._is_taken(values, rows, work)):
            self._divide(values, rows, work)

    def _divide(self, values: "_Array[Any]", rows: "np.ndarray[Any, Any]", work: "_Work") -> None:
        """Values that the parser refuses together: in parts, down to a few."""
        if len(values) <= _FEW:
            self._repair(values, rows, work)
            return
        size = max(_FEW, -(-len(values) // _PARTS))
        for start in range(0, len(values), size):
            part, places = values.slice(start, size), rows[start : start + size]
            if not self._is_taken(part, places, work):
                self._divide(part, places, work)

    def _is_taken(self, values: "_Array[Any]", rows: "np.ndarray[Any, Any]", work: "_Work") -> bool:
        """Whether the parser takes all the values; then they are done."""
        parsed = self._parsed(values, work)
        if parsed is not None:
            work.parts.append((pa.array(rows), parsed))
        return parsed is not None

    def _parsed(self, values: "_Array[Any]", work: "_Work") -> "_Array[Any] | None":
        if self._looks_for_more:
            found = self._parse(values, is_open=True)
            if found is not None:
                work.note(found.type, self._wire)
                return self._bounded(self._finished(found))
        found = self._parse(values)
        if found is not None and self._looks_for_more:
            work.note(infer_type(values.to_pylist()), self._wire)
        return None if found is None else self._bounded(self._finished(found))

    def _bounded(self, found: "_Array[Any] | None") -> "_Array[Any] | None":
        """None if a FLOAT is infinite: the parser takes numbers that are too large for it."""
        if found is None or not self._has_floats:
            return found
        floats = (leaf for leaf in _leaves(found) if pa.types.is_float32(leaf.type))
        return None if any(pc.any(pc.is_inf(leaf)).as_py() for leaf in floats) else found

    def _repair(self, values: "_Array[Any]", rows: "np.ndarray[Any, Any]", work: "_Work") -> None:
        """Each value by itself; together again where that is possible."""
        if self._looks_for_more:
            work.note(infer_type(values.to_pylist()), self._wire)
        repaired: list[str] = []
        places: list[int] = []
        here: list[Any] = values.to_pylist()
        for value, row in zip(here, rows.tolist(), strict=True):
            try:
                repaired.append(repair_value(value, self.type))
                places.append(row)
            except UnreadableError as error:
                # The parser decides: it reads some values that Python's does not.
                if not self._alone(value, row, work):
                    work.refused.append((row, short_reason(str(error))))
            except MisfitError as error:
                work.refused.append((row, short_reason(str(error))))
        if repaired:
            texts = pa.array([text.encode() for text in repaired], pa.binary())
            self._place_repaired(texts, np.array(places, np.int64), work)

    def _place_repaired(
        self, texts: "_Array[Any]", rows: "np.ndarray[Any, Any]", work: "_Work"
    ) -> None:
        """Repaired values together, in halves where the parser refuses one of them."""
        found = self._read(texts)
        if found is not None:
            work.parts.append((pa.array(rows), found))
        elif len(texts) == 1:
            work.refused.append((int(rows[0]), _CANNOT))
        else:
            half = len(texts) // 2
            self._place_repaired(texts.slice(0, half), rows[:half], work)
            self._place_repaired(texts.slice(half), rows[half:], work)

    def _alone(self, value: bytes, row: int, work: "_Work") -> bool:
        found = self._read(pa.array([value], pa.binary()))
        if found is not None:
            work.parts.append((pa.array([row], pa.int64()), found))
        return found is not None

    def _read(self, values: "_Array[Any]") -> "_Array[Any] | None":
        found = self._parse(values)
        return None if found is None else self._finished(found)

    def _parse(self, values: Any, *, is_open: bool = False) -> "_Array[Any] | None":
        """The values as objects; None if one of them cannot be read."""
        try:
            text: Any = values.cast(pa.string())  # the parser does not check UTF-8
            if not pc.all(pc.starts_with(pc.ascii_ltrim_whitespace(text), "{")).as_py():
                return None  # it takes null for an object
            parts: list[Any] = [self._marker, values, b""]
            joined: Any = pc.binary_join_element_wise(*parts)
            size = int(pc.sum(pc.binary_length(joined)).as_py())
            data = joined.buffers()[2].slice(0, size)
            source: Any = pa.BufferReader(data)
            table = pj.read_json(
                source,
                read_options=pj.ReadOptions(use_threads=False, block_size=size + 1024),
                parse_options=pj.ParseOptions(
                    explicit_schema=self._schema,
                    newlines_in_values=True,
                    unexpected_field_behavior="infer" if is_open else "ignore",
                ),
            )
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            return None
        if table.num_rows != 2 * len(values):
            return None
        marked = np.asarray(table.column(self._mark).combine_chunks().is_valid())
        if not marked[0::2].all() or marked[1::2].any():
            return None
        objects = table.drop_columns([self._mark]).take(np.arange(1, 2 * len(values), 2))
        batch = objects.combine_chunks()
        columns = [_one(batch.column(number)) for number in range(batch.num_columns)]
        return pa.StructArray.from_arrays(columns, fields=list(batch.schema))

    def _finished(self, found: "_Array[Any]") -> "_Array[Any] | None":
        try:
            is_done = self._is_plain and found.type == self.type
            finished = found if is_done else _converted(found, self.type)
            if self._has_decimals:  # the parser takes those that have too many digits
                for leaf in _leaves(finished):
                    if pa.types.is_decimal(leaf.type):
                        leaf.validate(full=True)
        except (pa.ArrowInvalid, ValueError):
            return None
        return finished


class _Work:
    """What was found so far in one batch."""

    def __init__(self) -> None:
        self.parts: list[tuple[pa.Array[Any], pa.Array[Any]]] = []
        self.refused: list[tuple[int, str]] = []
        self.found: pa.DataType | None = None

    def note(self, kind: pa.DataType, held: pa.DataType) -> None:
        if kind != held:
            seen = _as_inferred(kind)
            self.found = seen if self.found is None else join_types(self.found, seen)

    def values(self, kind: pa.DataType, count: int) -> Any:
        if len(self.parts) == 1 and len(self.parts[0][0]) == count:
            return self.parts[0][1]
        return scattered(kind, count, self.parts)

    def reasons(self, count: int) -> "pa.Array[Any]":
        if not self.refused:
            return pa.nulls(count, pa.string())
        texts: list[str | None] = [None] * count
        for row, reason in self.refused:
            texts[row] = reason
        return pa.array(texts, pa.string())


def _wire_type(kind: Any) -> pa.DataType:
    """The type as the parser can read it."""
    if pa.types.is_struct(kind):
        return struct_of([pa.field(f.name, _wire_type(f.type)) for f in fields_of(kind)])
    if pa.types.is_list(kind):
        return list_of(_wire_type(kind.value_type))
    if pa.types.is_map(kind):
        entry = [pa.field("key", pa.string()), pa.field("value", _wire_type(kind.item_type))]
        return list_of(struct_of(entry))
    return pa.string() if pa.types.is_date(kind) or pa.types.is_binary(kind) else kind


def _has_map(kind: pa.DataType) -> bool:
    return _has(kind, pa.types.is_map)


def _has(kind: pa.DataType, is_meant: Callable[[pa.DataType], bool]) -> bool:
    return is_meant(kind) or any(_has(child, is_meant) for child in children_of(kind))


def _leaves(array: Any) -> Iterator[Any]:
    """The columns inside of a column that have no columns inside."""
    if pa.types.is_struct(array.type):
        for field in array.flatten():
            yield from _leaves(field)
    elif pa.types.is_list(array.type) or pa.types.is_map(array.type):
        yield from _leaves(array.flatten() if pa.types.is_list(array.type) else array.values)
    else:
        yield array


def _as_inferred(kind: Any) -> pa.DataType:
    """A type that the parser guessed, by our rules: it takes texts for times."""
    if pa.types.is_struct(kind):
        return struct_of([pa.field(f.name, _as_inferred(f.type)) for f in fields_of(kind)])
    if pa.types.is_list(kind):
        return list_of(_as_inferred(kind.value_type))
    return pa.string() if pa.types.is_temporal(kind) else kind


def _one(column: Any) -> Any:
    """A column of one chunk as an array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _converted(array: Any, kind: Any) -> "_Array[Any]":
    """What the parser read, as the type that was asked for, without fields that it lacks."""
    return conformed(_without_base64(array, kind), kind)


def _without_base64(array: Any, kind: Any) -> "_Array[Any]":
    """The array with the bytes of binary fields, which JSON has as base64."""
    if not _has_binary(kind):
        return array  # type: ignore[no-any-return]
    if pa.types.is_struct(kind):
        columns, fields = [], []
        for field in fields_of(kind):
            column = array.field(array.type.get_field_index(field.name))
            columns.append(_without_base64(column, field.type))
            fields.append(pa.field(field.name, columns[-1].type))
        mask = array.is_null() if array.null_count else None
        return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)
    if pa.types.is_list(kind):
        values = _without_base64(array.values, kind.value_type)
        return with_values(array, list_of(values.type), values)
    if pa.types.is_map(kind):
        entries = array.values
        items = _without_base64(entries.field(1), kind.item_type)
        fields = [pa.field("key", pa.string()), pa.field("value", items.type)]
        pairs = pa.StructArray.from_arrays([entries.field(0), items], fields=fields)
        return with_values(array, list_of(pairs.type), pairs)
    return pa.array(
        [None if v is None else base64.b64decode(v, validate=True) for v in array.to_pylist()],
        pa.binary(),
    )


def _has_binary(kind: pa.DataType) -> bool:
    return _has(kind, pa.types.is_binary)
