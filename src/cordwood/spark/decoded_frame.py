"""`cordwood.spark.decode(df, …)`: a column of bytes as typed columns, and misfits rescued.

    orders = cordwood.spark.decode(df, schema="id BIGINT, amount DOUBLE")
    orders.select("offset", "decoded.id", "_rescued.reason")

The same decoders as in `export`. Works on batches and on streams.
"""

from typing import TYPE_CHECKING, Final

from cordwood.errors import ConfigError
from cordwood.spark.decoding.column_format import Encoding
from cordwood.spark.decoding.row_decoding import RowFormat
from cordwood.spark.decoding.schema_evolution import Evolution, SchemaEvolution
from cordwood.spark.decoding.schema_registry import SchemaRegistry
from cordwood.spark.jobs.decoded_column import decoded_column
from cordwood.spark.jobs.row_choice import DEBEZIUM, INFER, ColumnChoice, RowChoice, new_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_SAMPLE_ROWS: Final = 10_000


def decode(
    df: "DataFrame",
    *,
    format: str | None = None,
    schema: str | None = None,
    message: str | None = None,
    registry: str | None = None,
    subject: str | None = None,
    envelope: str | None = None,
    column: str = "value",
    into: str = "decoded",
    rescued: str = "_rescued",
) -> "DataFrame":
    """`df` with two more columns: `into`, typed, and `rescued`, a reason and the bytes.

    One of the two is null in every row; both for a null value.

    format     text, json, avro or protobuf; json by default
    schema     of JSON a DDL text, or `infer` for a batch; Avro's JSON; Protobuf's text
    message    the Protobuf message, if the schema has several
    registry   URL of a schema registry; `subject` names the schemas: all of its versions are known
    envelope   `debezium`: `into` then has the fields op, before, after and changed_at
    """
    if into.lower() == rescued.lower():
        raise ConfigError("rescued", rescued, "must not be the name of the decoded column")
    kind = df.select(column).schema[0].dataType.typeName()
    if kind not in {"string", "binary"}:
        raise ConfigError("column", column, f"must be binary or string, not {kind}")
    is_debezium = envelope is not None
    if envelope not in {None, DEBEZIUM}:
        raise ConfigError("envelope", envelope, f"must be {DEBEZIUM}")
    try:
        encoding = Encoding((format or Encoding.JSON).lower())
    except ValueError:
        raise ConfigError("format", format, f"must be one of {', '.join(Encoding)}") from None
    choice = RowChoice(
        value=ColumnChoice(encoding=encoding, schema=schema, message=message),
        registry=registry,
        is_debezium=is_debezium,
    )
    if schema == INFER and df.isStreaming:
        raise ConfigError("schema", INFER, "a stream needs a schema")

    def sample() -> list[tuple[bytes | None, bytes | None]]:
        values = df.select(df[column].cast("binary").alias("value")).where("value IS NOT NULL")
        rows = values.limit(_SAMPLE_ROWS).collect()
        return [(None, bytes(row[0])) for row in rows]

    form = new_rows(choice, sample).form
    if registry is not None and encoding is not Encoding.JSON:
        form = _from_subject(form, SchemaRegistry(registry), subject)
    return decoded_column(df, form, column=column, into=into, rescued=rescued)


def _from_subject(form: RowFormat, registry: SchemaRegistry, subject: str | None) -> RowFormat:
    if subject is None:
        raise ConfigError("subject", "", "is required with a registry, for example orders-value")
    evolution = SchemaEvolution(Evolution(grows=True, widens=True), registry)
    found = evolution.with_ids(form, {"value": frozenset(registry.subject_ids(subject))})
    if found.value.schema is None:
        raise ConfigError("subject", subject, f"has no schema in {form.value.encoding}")
    return found
