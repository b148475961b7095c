"""Schemas of JSON values as Spark has them, for jobs that let Spark read JSON."""

from typing import TYPE_CHECKING

from cordwood.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


def parse_schema(text: str) -> "StructType":
    """Parse a schema in DDL, `id BIGINT, name STRING`, or in Spark's JSON form."""
    import json

    from pyspark.errors import PySparkException
    from pyspark.sql.types import DataType, StructType

    try:
        if text.lstrip().startswith("{"):
            found: DataType = StructType.fromJson(json.loads(text))
        else:
            found = DataType.fromDDL(text)
    except (PySparkException, ValueError, KeyError, TypeError) as error:
        reason = str(error).partition("\n")[0]
        raise ConfigError("value schema", text, f"is not a schema: {reason}") from error
    if not isinstance(found, StructType) or not found.fields:
        raise ConfigError("value schema", text, "must name the fields of an object")
    return found
