"""The row as Spark's types and as Arrow's: both say the same, as Spark checks.

All columns may be null, as in Spark's Kafka source, and the lists' items are called `element`:
Spark refuses record batches whose schema differs in anything.
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
    """The columns of a schema that Spark hands us: ours, or a part of it that the user wrote."""
    for field in schema.fields:
        expected = _TYPES.get(field.name)
        if expected is None or field.dataType != expected:
            rows = ", ".join(f"{name} {kind.simpleString()}" for name, kind in _TYPES.items())
            raise ConfigError(
                "schema",
                f"{field.name} {field.dataType.simpleString()}",
                f"is fixed; leave it out, or name some of {rows}",
            )
    return tuple(schema.fieldNames())
