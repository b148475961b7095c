"""The columns of a DataFrame that is written: which there must be, and of which types.

    value      string or binary             null is a tombstone
    key        string or binary             decides the partition, where no other column does
    headers    array<struct<key: string, value: binary>>
    topic      string                       unless the option names one
    partition  int                          null: the key decides
    timestamp  timestamp                    null: the time of writing

Names are taken without regard to case, as Spark does; other columns are passed over.
"""

from dataclasses import dataclass
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
    """Where in a row each column is; None for one that is not there."""

    value: int
    key: int | None = None
    headers: int | None = None
    topic: int | None = None
    partition: int | None = None
    timestamp: int | None = None

    @classmethod
    def of(cls, schema: StructType, *, topic: str | None) -> "SinkColumns":
        """Those of a DataFrame's schema, whose rows go to `topic`, if the option names one."""
        found: dict[str, int] = {}
        for index, field in enumerate(schema.fields):
            name = field.name.lower()
            if name not in _RULES:
                continue
            if name in found:
                raise ConfigError("column", field.name, "is there twice")
            _check_type(name, field)
            found[name] = index
        if "value" not in found:
            names = ", ".join(schema.fieldNames())
            raise ConfigError("column", "value", f"must be there; there are {names}")
        if "topic" not in found and topic is None:
            raise ConfigError("topic", "", "must be given, as an option or as a column")
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
    """As declared, whatever may be null in it."""
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    return [(f.name, f.dataType) for f in kind.elementType.fields] == [
        ("key", StringType()),
        ("value", BinaryType()),
    ]
