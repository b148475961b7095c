"""The columns of a row, their Spark types, and the option `columns` that chooses among them.

The columns are those of Spark's Kafka source; `headers` is present if the query asks for it. All
columns may be null and list items are called `element`, as in that source. `arrow_rows` has the
same types for Arrow: Spark refuses record batches whose schema differs.
"""

from collections.abc import Sequence
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cordwood.errors import ConfigError

HEADERS: Final = "headers"
DEFAULT_COLUMNS: Final = (
    "key",
    "value",
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestampType",
)
ALL_COLUMNS: Final = (*DEFAULT_COLUMNS, HEADERS)

_SPELLINGS: Final = {name.lower(): name for name in ALL_COLUMNS}

_HEADER: Final = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
_TYPES: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
    "headers": ArrayType(_HEADER),
}


def row_schema(columns: Sequence[str]) -> StructType:
    """Spark's schema of rows with these columns."""
    return StructType([StructField(name, _TYPES[name]) for name in columns])


def columns_of(schema: StructType) -> tuple[str, ...]:
    """The columns of the schema that Spark passes: the default one, or one that the user wrote."""
    for field in schema.fields:
        expected = _TYPES.get(field.name)
        if expected is None or field.dataType != expected:
            rows = ", ".join(f"{name} {kind.simpleString()}" for name, kind in _TYPES.items())
            raise ConfigError(
                "schema",
                f"{field.name} {field.dataType.simpleString()}",
                f"is not a column of this source; omit the schema, or use some of {rows}",
            )
    return tuple(schema.fieldNames())


def parse_columns(text: str) -> tuple[str, ...]:
    """The columns that `text` names, in its order."""
    rule = f"must be some of {', '.join(ALL_COLUMNS)}, separated by commas"
    typed = [part.strip() for part in text.split(",")]
    found = tuple(_SPELLINGS.get(name.lower(), "") for name in typed)
    if not all(found) or not found:
        unknown = next(name for name, known in zip(typed, found, strict=True) if not known)
        raise ConfigError("columns", text, f"{rule}; unknown column {unknown!r}")
    if len(set(found)) < len(found):
        raise ConfigError("columns", text, f"{rule}, each once")
    return found
