"""JSON values as columns; values that do not decode get a reason.

A value decodes if it is an object whose fields fit the schema. Missing fields are null, and fields
that the schema lacks are dropped. A null value, which is a tombstone, stays null.
"""

from typing import TYPE_CHECKING, Final

from cordwood.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

REASON: Final = "reason"
DECODED: Final = "decoded"
INFERENCE_ROWS: Final = 10_000
_CORRUPT: Final = "__cordwood_not_decoded"
_NOT_TEXT: Final = "the value is not UTF-8"
_NOT_OBJECT: Final = "the value is not a JSON object"
_NOT_FITTING: Final = "the value does not fit the schema"


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


def infer_schema(
    spark: "SparkSession", df: "DataFrame", *, rows_max: int = INFERENCE_ROWS
) -> "StructType":
    """The schema inferred from the first values."""
    texts = (
        df.where("value IS NOT NULL AND is_valid_utf8(CAST(value AS STRING))")
        .limit(rows_max)
        .selectExpr("CAST(value AS STRING) AS text")
    )
    found = spark.read.json(texts.rdd.map(lambda row: row["text"])).schema
    fields = [field for field in found.fields if field.name != "_corrupt_record"]
    if not fields:
        raise ConfigError(
            "value schema", "infer", "no value is a JSON object; set a schema, or omit the option"
        )
    return type(found)(fields)


def decode_values(df: "DataFrame", schema: "StructType") -> "DataFrame":
    """`df` with two more columns: the decoded value, or the reason why it does not decode."""
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StringType, StructType

    if _CORRUPT in schema.fieldNames():
        raise ConfigError("value schema", _CORRUPT, "is a reserved name")
    parsed = StructType([*schema.fields]).add(_CORRUPT, StringType())
    text = fn.col("value").cast("string")
    options = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}
    found = df.withColumn("__text", text).withColumn(
        "__parsed", fn.from_json(fn.col("__text"), parsed, options)
    )
    is_wrong = fn.col(f"__parsed.{_CORRUPT}").isNotNull()
    reason = (
        fn.when(fn.col("value").isNull(), None)
        .when(~fn.is_valid_utf8(fn.col("__text")), _NOT_TEXT)
        .when(~fn.ltrim("__text").startswith("{") | fn.col("__parsed").isNull(), _NOT_OBJECT)
        .when(is_wrong, _NOT_FITTING)
    )
    fields = [fn.col("__parsed").getField(name).alias(name) for name in schema.fieldNames()]
    return (
        found.withColumn(REASON, reason)
        .withColumn(
            DECODED,
            fn.when(fn.col(REASON).isNull() & fn.col("value").isNotNull(), fn.struct(*fields)),
        )
        .drop("__text", "__parsed")
    )
