"""A column of bytes, decoded in executors by an Arrow function over that column alone."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from cordwood.spark.decoding.column_format import ColumnFormat
from cordwood.spark.decoding.debezium import envelope_type, open_envelope
from cordwood.spark.decoding.row_decoding import RowFormat
from cordwood.spark.decoding.type_text import TIMESTAMP, parse_schema

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

_BOTH: Final = "__cordwood_decoded"


def decoded_column(
    df: "DataFrame",
    form: RowFormat,
    *,
    column: str = "value",
    into: str = "decoded",
    rescued: str = "_rescued",
) -> "DataFrame":
    """`df` with a column decoded as the value of `form`."""
    import pyarrow as pa
    from pyspark.sql import functions as fn
    from pyspark.sql.pandas.types import from_arrow_type

    kind = _result_type(form)
    both = pa.struct([pa.field("decoded", kind), pa.field("reason", pa.string())])

    def decoded(batches: Iterator[pa.Array]) -> Iterator[pa.Array]:  # type: ignore[type-arg]
        yield from _decoded_batches(batches, form)

    make: Any = fn.arrow_udf
    apply: Any = make(decoded, returnType=from_arrow_type(both))
    found = df.withColumn(_BOTH, apply(fn.col(column)))
    misfit = fn.struct(fn.col(f"{_BOTH}.reason").alias("reason"), fn.col(column).alias("value"))
    # Both at once: one of the names may be that of `column`.
    made = {
        into: fn.col(f"{_BOTH}.decoded"),
        rescued: fn.when(fn.col(f"{_BOTH}.reason").isNotNull(), misfit),
    }
    return found.withColumns(made).drop(_BOTH)


def _result_type(form: RowFormat) -> "pa.DataType":
    import pyarrow as pa

    if not form.is_debezium:
        return form.value.type
    row = form.value.type
    return pa.struct(
        [
            pa.field("op", pa.string()),
            pa.field("before", row),
            pa.field("after", row),
            pa.field("changed_at", TIMESTAMP),
        ]
    )


def _decoded_batches(
    batches: "Iterator[pa.Array[Any]]", form: RowFormat
) -> "Iterator[pa.Array[Any]]":
    """In executors: structs of the decoded value and the reason."""
    import pyarrow as pa
    import pyarrow.compute as pc

    decoder = opened_value(form).open()
    kind: Any = _result_type(form)
    for batch in batches:
        found = decoder.decode(batch.cast(pa.binary()))
        values: Any = found.values
        reasons: Any = found.reasons
        if form.is_debezium:
            opened = open_envelope(values, form.value.type)
            reasons = pc.coalesce(reasons, opened.reasons)
            parts = [opened.op, opened.before, opened.after, opened.changed_at]
            values = pa.StructArray.from_arrays(
                parts, fields=list(kind), mask=pc.invert(pc.is_valid(values))
            )
        values = pc.if_else(reasons.is_null(), values, pa.scalar(None, kind))
        yield pa.StructArray.from_arrays([values, reasons], names=["decoded", "reason"])


def opened_value(form: RowFormat) -> ColumnFormat:
    """The format of the value's bytes; with an envelope, of the envelope."""
    value = form.value
    if form.is_debezium and value.schema is not None:
        return value.with_type(envelope_type(parse_schema(value.schema)))
    return value
