"""Values that are JSON, as columns; and what is not, told apart with a reason.

A value is taken when it is an object whose fields fit the schema. Fields it lacks are null, and
fields the schema lacks are left out. A null value, which is a tombstone, stays null.
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
    """A schema as people write it, `id BIGINT, name STRING`, or as Spark writes it, in JSON."""
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
        raise ConfigError("value schema", text, f"is not one: {reason}") from error
    if not isinstance(found, StructType) or not found.fields:
        raise ConfigError("value schema", text, "must name the fields of an object")
    return found


def infer_schema(
    spark: "SparkSession", df: "DataFrame", *, rows_max: int = INFERENCE_ROWS
) -> "StructType":
    """The schema that the first values suggest."""
    texts = (
        df.where("value IS NOT NULL AND is_valid_utf8(CAST(value AS STRING))")
        .limit(rows_max)
        .selectExpr("CAST(value AS STRING) AS text")
    )
    found = spark.read.json(texts.rdd.map(lambda row: row["text"])).schema
    fields = [field for field in found.fields if field.name != "_corrupt_record"]
    if not fields:
        raise ConfigError(
            "value schema", "infer", "no value is a JSON object: give the schema, or leave it out"
        )
    return type(found)(fields)


def decode_values(df: "DataFrame", schema: "StructType") -> "DataFrame":
    """`df` with two more columns: the value as a struct, and why it is none."""
    from pyspark.sql import functions as fn
    from pyspark.sql.types import StringType, StructType

    if _CORRUPT in schema.fieldNames():
        raise ConfigError("value schema", _CORRUPT, "is a name we need ourselves")
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
