"""Rows of a topic as rows of a table: key, value and headers decoded, misfits set apart.

    topic, partition, offset, timestamp, timestampType, key, value, headers

With Debezium's envelope, `value` is the row after the change, and three columns come after it:
`op` (c, u, d, r), `before`, and `changed_at`, the time of the change in the database.
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cordwood.spark.decoding.column_format import ColumnFormat, Encoding
from cordwood.spark.decoding.debezium import envelope_type, open_envelope, row_type
from cordwood.spark.decoding.type_text import TIMESTAMP, parse_schema
from cordwood.value_class import dataclass, field

REASON: Final = "reason"
ENVELOPE_COLUMNS: Final = ("op", "before", "changed_at")
_HEADER_TEXT: Final = pa.list_(
    pa.field("element", pa.struct([pa.field("key", pa.string()), pa.field("value", pa.string())]))
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowFormat:
    """How rows are decoded. Tasks get it, so it holds only values."""

    key: ColumnFormat = field(default_factory=ColumnFormat)
    value: ColumnFormat = field(default_factory=ColumnFormat)
    has_text_headers: bool = False
    is_debezium: bool = False
    looks_for_more: bool = False

    @property
    def is_typed(self) -> bool:
        return self.key.is_typed or self.value.is_typed or self.has_text_headers

    def table_schema(self, raw: pa.Schema) -> pa.Schema:
        """The columns of the table, from those of the topic's rows."""
        fields = []
        for found in raw:
            if found.name == "key":
                found = found.with_type(self.key.type)  # noqa: PLW2901
            elif found.name == "value":
                found = found.with_type(self.value.type)  # noqa: PLW2901
            elif found.name == "headers" and self.has_text_headers:
                found = found.with_type(_HEADER_TEXT)  # noqa: PLW2901
            fields.append(found)
        if self.is_debezium:
            kinds = (pa.string(), self.value.type, TIMESTAMP)
            fields += [
                pa.field(name, kind) for name, kind in zip(ENVELOPE_COLUMNS, kinds, strict=True)
            ]
        return pa.schema(fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodedRows:
    """The rows of one batch: those that fit, typed; those that do not, as they were, with `reason`.

    found    a type with fields that the value's schema lacks
    missing  ids of schemas, of keys and of values
    """

    accepted: pa.RecordBatch
    rejected: pa.RecordBatch | None = None
    found: pa.DataType | None = None
    missing: dict[str, frozenset[int]] = field(default_factory=dict)


class RowDecoder:
    """Decodes batches of rows. For one thread."""

    def __init__(self, form: RowFormat) -> None:
        self._form = form
        self._key = form.key.open()
        value = form.value
        if form.is_debezium and value.schema is not None:
            value = value.with_type(envelope_type(parse_schema(value.schema)))
        self._value = value.open(looks_for_more=form.looks_for_more)

    def decode(self, batch: pa.RecordBatch) -> DecodedRows:
        form = self._form
        if not form.is_typed:
            return DecodedRows(accepted=batch)
        names = list(batch.schema.names)
        columns: dict[str, Any] = dict(zip(names, batch.columns, strict=True))
        reasons: list[Any] = []
        missing: dict[str, frozenset[int]] = {}
        found = None
        if form.key.is_typed:
            keys = self._key.decode(columns["key"])
            columns["key"] = keys.values
            told: list[Any] = ["key:", keys.reasons, " "]
            reasons.append(pc.binary_join_element_wise(*told))
            missing["key"] = keys.missing
        if form.value.is_typed:
            values = self._value.decode(columns["value"])
            columns["value"] = values.values
            reasons.append(values.reasons)
            missing["value"] = values.missing
            found = values.found
            if found is not None and form.is_debezium:
                found = row_type(found)
        if form.has_text_headers and "headers" in columns:
            columns["headers"], wrong = _text_headers(columns["headers"])
            reasons.append(wrong)
        if form.is_debezium:
            opened = open_envelope(columns["value"], form.value.type)
            columns["value"] = opened.after
            columns |= {"op": opened.op, "before": opened.before, "changed_at": opened.changed_at}
            reasons.append(opened.reasons)
        return self._sorted_out(batch, columns, reasons, found, missing)

    def _sorted_out(
        self,
        batch: pa.RecordBatch,
        columns: dict[str, Any],
        reasons: Sequence[Any],
        found: pa.DataType | None,
        missing: dict[str, frozenset[int]],
    ) -> DecodedRows:
        schema = self._form.table_schema(batch.schema)
        rows = pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
        reason: Any = pc.coalesce(*reasons) if len(reasons) > 1 else reasons[0]
        if reason.null_count == len(reason):
            return DecodedRows(accepted=rows, found=found, missing=missing)
        is_taken: Any = reason.is_null()
        left = batch.append_column(REASON, reason).filter(pc.invert(is_taken))
        return DecodedRows(
            accepted=rows.filter(is_taken), rejected=left, found=found, missing=missing
        )


def _text_headers(headers: Any) -> tuple[Any, Any]:
    """Headers with values as text, and reasons for those that are not UTF-8."""
    count = len(headers)
    values = headers.values.field(1)
    wrong: Any = pa.nulls(count, pa.string())
    decoded = ColumnFormat(encoding=Encoding.TEXT).open().decode(values)
    if decoded.reasons.null_count != len(values):
        at = headers.offset
        offsets = headers.buffers()[1]
        ends = np.frombuffer(offsets, np.int32)[at : at + count + 1]
        bad_before = np.zeros(len(values) + 1, np.int64)
        np.cumsum(np.asarray(decoded.reasons.is_valid()), out=bad_before[1:])
        has_bad = pa.array(bad_before[ends[1:]] > bad_before[ends[:-1]])
        told: Any = pa.scalar("a header is not UTF-8")
        wrong = pc.if_else(has_bad, told, pa.scalar(None, pa.string()))
    pairs = pa.StructArray.from_arrays(
        [headers.values.field(0), decoded.values], fields=list(_HEADER_TEXT.value_type)
    )
    validity, offsets = headers.buffers()[:2]
    made = pa.Array.from_buffers(
        _HEADER_TEXT, count, [validity, offsets], offset=headers.offset, children=[pairs]
    )
    return made, wrong
