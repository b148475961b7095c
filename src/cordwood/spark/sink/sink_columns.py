"""The columns of a DataFrame to write: which are required, and their types.

    value      string or binary             null is a tombstone
    key        string or binary             chooses the partition, unless the column does
    headers    array<struct<key: string, value: binary>>
    topic      string                       unless the option names one
    partition  int                          null: the key decides
    timestamp  timestamp                    null: the time of writing

Names are case-insensitive, as in Spark; other columns are ignored.
"""

from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from cordwood.errors import ConfigError
from cordwood.value_class import dataclass

_HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
_TYPES: Final[dict[str, tuple[type[DataType], ...]]] = {
    "value": (StringType, BinaryType),
    "key": (StringType, BinaryType),
    "topic": (StringType,),
    "partition": (IntegerType,),
    "timestamp": (TimestampType,),
}
_RULES: Final = {
    "value": "string or binary",
    "key": "string or binary",
    "topic": "string",
    "partition": "int",
    "timestamp": "timestamp",
    "headers": _HEADERS.simpleString(),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkColumns:
    """The position of each column in a row; None for an absent one."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None

    @classmethod
    def of(cls, schema: StructType, *, topic: str | None) -> "SinkColumns":
        """The columns of a DataFrame's schema; `topic` is the option's value, or None."""
        found: dict[str, int] = {}
        for index, field in enumerate(schema.fields):
            name = field.name.lower()
            if name not in _RULES:
                continue
            if name in found:
                raise ConfigError("column", field.name, "occurs twice")
            _check_type(name, field)
            found[name] = index
        if "value" not in found:
            names = ", ".join(schema.fieldNames())
            raise ConfigError("column", "value", f"is required; the columns are {names}")
        if "topic" not in found and topic is None:
            raise ConfigError("topic", "", "is required, as an option or as a column")
        return cls(**found)

    def take(self, batch: pa.RecordBatch, name: str) -> "pa.Array[Any] | None":
        index = getattr(self, name)
        return None if index is None else batch.column(index)


def _check_type(name: str, field: StructField) -> None:
    kind = field.dataType
    is_right = _is_headers(kind) if name == "headers" else isinstance(kind, _TYPES.get(name, ()))
    if not is_right:
        raise ConfigError(
            "column", f"{field.name} {kind.simpleString()}", f"must be {_RULES[name]}"
        )


def _is_headers(kind: DataType) -> bool:
    """The type without its nullability."""
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    return [(f.name, f.dataType) for f in kind.elementType.fields] == [
        ("key", StringType()),
        ("value", BinaryType()),
    ]
