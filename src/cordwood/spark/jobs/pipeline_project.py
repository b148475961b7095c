"""A project for Spark's declarative pipelines that keeps tables of a topic: its files, as texts.

    spark-pipeline.yml, conf/spark-defaults.conf, transformations/<topic>.py

One streaming table has every record, decoded. If the topic is a changelog, a second table has the
newest value of each key, without deleted ones. Spark's own files hold them, so the project needs no
jar; Auto CDC flows need a table format that can merge, which Spark does not contain.
"""

import json
import re
from collections.abc import Iterable
from typing import Any, Final

import pyarrow as pa

from cordwood.errors import ConfigError
from cordwood.spark.decoding.type_text import fields_of
from cordwood.value_class import dataclass

RUN_COMMAND: Final = "SPARK_CONF_DIR=conf SPARK_REMOTE='local[*]' spark-pipelines run"
_WORD: Final = re.compile(r"[^a-z0-9_]+")
_NAMES: Final[dict[pa.DataType, str]] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    pa.timestamp("us", tz="UTC"): "TIMESTAMP",
    pa.timestamp("us"): "TIMESTAMP_NTZ",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineProject:
    """What the project is about. Paths are absolute."""

    topic: str
    data: str
    home: str
    type: pa.DataType | None
    is_changelog: bool

    def __post_init__(self) -> None:
        for name, path in (("data", self.data), ("project", self.home)):
            if any(character in path for character in "\n\r#;'\""):
                raise ConfigError(name, path, "has a character that Spark's files cannot hold")

    @property
    def table(self) -> str:
        """The topic's name as the name of a table."""
        word = _WORD.sub("_", self.topic.lower()).strip("_")
        return word if word and not word[0].isdigit() else f"t_{word}"

    def files(self) -> dict[str, str]:
        """The texts of the files, by their paths in the project."""
        return {
            "spark-pipeline.yml": self._pipeline(),
            "conf/spark-defaults.conf": self._conf(),
            f"transformations/{self.table}.py": self._transformations(),
        }

    def _pipeline(self) -> str:
        return f"""# Run it here, in this directory, with: {RUN_COMMAND}
name: {self.table}
storage: file://{self.home}/storage
libraries:
  - glob:
      include: transformations/**
configuration:
  cordwood.data: {json.dumps(self.data)}
"""

    def _conf(self) -> str:
        return f"""# The next run must find the tables, so the catalog is in files.
spark.sql.catalogImplementation           hive
spark.sql.warehouse.dir                   file://{self.home}/warehouse
spark.hadoop.javax.jdo.option.ConnectionURL  \
jdbc:derby:;databaseName={self.home}/catalog;create=true
spark.driver.extraJavaOptions             -Dderby.stream.error.file={self.home}/derby.log
spark.ui.enabled                          false
spark.log.level                           ERROR
"""

    def _transformations(self) -> str:
        columns = '"topic", "partition", "offset", "timestamp", "key"'
        if self.type is None:
            schema = ""
            body = f'    return records.select({columns}, "value")'
        else:
            schema = f"SCHEMA = {json.dumps(render_ddl(self.type))}\n"
            body = f"""    text = fn.col("value").cast("string")
    return records.select({columns}, fn.from_json(text, SCHEMA).alias("value"))"""
        view = _CURRENT.format(table=self.table) if self.is_changelog else ""
        return _TABLE.format(
            topic=self.topic, table=self.table, schema=schema, body=body, view=view
        )


_TABLE: Final = '''"""Tables of the topic {topic}. Spark finds `format("cordwood")` itself."""

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as fn

spark = SparkSession.active()
{schema}

@dp.table(name="{table}", format="parquet")
def {table}() -> DataFrame:
    """Every record, exactly once."""
    records = (
        spark.readStream.format("cordwood")
        .option("subscribe", "{topic}")
        .option("startingOffsets", "earliest")
        .load(spark.conf.get("cordwood.data"))
    )
{body}
{view}'''

_CURRENT: Final = '''

@dp.materialized_view(name="{table}_current", format="parquet")
def {table}_current() -> DataFrame:
    """The newest value of each key; a tombstone deletes its key."""
    newest = fn.max_by(fn.struct("value", "offset", "timestamp"), "offset").alias("newest")
    rows = spark.read.table("{table}").where("key IS NOT NULL").groupBy("partition", "key")
    return rows.agg(newest).select("key", "newest.*").where("value IS NOT NULL")
'''


def render_ddl(kind: Any) -> str:
    """The fields of a struct as Spark's DDL."""
    return ", ".join(f"`{child.name}` {_name(child.type)}" for child in fields_of(kind))


def _name(kind: Any) -> str:
    if pa.types.is_struct(kind):
        inside = (f"`{child.name}`: {_name(child.type)}" for child in fields_of(kind))
        return f"STRUCT<{', '.join(inside)}>"
    if pa.types.is_list(kind):
        return f"ARRAY<{_name(kind.value_type)}>"
    if pa.types.is_map(kind):
        return f"MAP<{_name(kind.key_type)}, {_name(kind.item_type)}>"
    if pa.types.is_decimal(kind):
        return f"DECIMAL({kind.precision},{kind.scale})"
    return _NAMES[kind]


def check_empty(existing: Iterable[str], files: Iterable[str], home: str) -> None:
    """Raise `ConfigError` if a file of the project is already there."""
    there = sorted(set(existing) & set(files))
    if there:
        raise ConfigError("project", home, f"has {there[0]} already; choose a new directory")
