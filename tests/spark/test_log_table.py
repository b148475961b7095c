"""`cordwood.spark.table` and the option `where`, on a real session, beside what Spark filters."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cordwood
import cordwood.spark
from cordwood.errors import ConfigError
from cordwood.log.store.store import Store

from .spark_rows import rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA = Path(__file__).parents[1] / "golden" / "kafka-4.3"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Topic a in two partitions of 60 records in segments of ten, with late records."""
    config = {"retention.ms": "-1", "segment.records": "10", "key.index": "true"}
    with cordwood.open(tmp_path_factory.mktemp("store")) as opened:
        topic = opened.create_topic("a", partitions=2, config=config)
        for number in range(120):
            time_ms = 1_000_000 + number * 1000 - (50_000 if number % 7 == 0 else 0)
            key = None if number % 11 == 0 else b"k%d" % (number % 5)
            record = cordwood.Record(b"v%d" % number, key, (), time_ms)
            topic.append_many([record], partition=number % 2)
        opened.maintain()
        yield opened


def everything(spark: "SparkSession", path: object) -> "DataFrame":
    return spark.read.format("cordwood").option("subscribe", "a").load(str(path))


# Texts that mean the same to Spark.
CONDITIONS = [
    "partition = 1 AND offset > 20",
    "offset IN (3, 4, 5, 40) OR partition = 0 AND offset < 2",
    "timestamp >= timestamp_millis(1090000) AND timestamp < timestamp_millis(1100000)",
    "timestamp < TIMESTAMP '1970-01-01T00:17:00Z'",
    "key = X'6b31' AND offset >= 10",
    "key IS NULL",
    "NOT (key IN (X'6b31', X'6b32') OR offset > 30)",
    "partition = 7",
]


@pytest.mark.parametrize("condition", CONDITIONS)
def test_where_returns_the_rows_that_spark_filters(
    spark: "SparkSession", store: Store, condition: str
) -> None:
    filtered = rows(everything(spark, store.path).where(condition))
    reader = spark.read.format("cordwood").option("subscribe", "a").option("where", condition)
    table = cordwood.spark.table(spark, store.path, "a", where=condition)

    assert rows(reader.load(store.path)) == filtered
    assert rows(table.to_df()) == filtered
    assert table.count() == len(filtered)


def test_a_table_has_the_rows_and_the_schema_of_the_source(
    spark: "SparkSession", store: Store
) -> None:
    whole = everything(spark, store.path)
    table = cordwood.spark.table(spark, store.path, "a")

    assert rows(table.to_df()) == rows(whole)
    assert table.to_df().schema == whole.schema == table.schema
    assert table.count() == whole.count() == 120


def test_columns_and_conditions_are_added_to_a_table(spark: "SparkSession", store: Store) -> None:
    table = cordwood.spark.table(spark, Path(store.path), "a", columns=("offset", "partition"))

    narrow = table.where("offset >= 58").where("partition = 1 OR offset = 58")

    assert narrow.to_df().columns == ["offset", "partition"]
    assert sorted(tuple(row) for row in narrow.to_df().collect()) == [(58, 0), (58, 1), (59, 1)]
    assert narrow.count() == 3
    assert table.select("timestamp").columns == ("timestamp",)
    assert repr(narrow) == (
        "LogTable(a: offset, partition where offset >= 58 and partition = 1 OR offset = 58)"
    )


def test_a_table_takes_the_options_of_the_source(spark: "SparkSession", store: Store) -> None:
    table = cordwood.spark.table(
        spark, store.path, "a", startingOffsets='{"a": {"0": 55, "1": -2}}', includeHeaders=True
    )

    assert table.count() == 65
    assert table.to_df().count() == 65
    assert table.columns[-1] == "headers"


def test_a_table_sees_the_log_as_it_is_when_rows_are_wanted(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("a")
        table = cordwood.spark.table(spark, tmp_path, "a")
        assert table.count() == table.to_df().count() == 0

        topic.append(b"v")

        assert table.count() == table.to_df().count() == 1


def test_a_count_leaves_out_markers_and_on_request_aborted_records(spark: "SparkSession") -> None:
    for level in ("read_committed", "read_uncommitted"):
        options = {"kafka.isolation.level": level}
        table = cordwood.spark.table(spark, KAFKA / "data", "transactions", **options)

        assert table.count() == len(table.to_df().collect()) > 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"where": "offset >"}, "where = offset >: a value must stand here"),
        ({"columns": ["offset", "ofset"]}, "unknown column 'ofset'"),
        ({"columns": ["offset", "offset"]}, "each once"),
        ({"subscribe": "b"}, "are arguments of table()"),
        ({"startingOfsets": "earliest"}, "did you mean startingOffsets"),
    ],
)
def test_what_cannot_be_used_is_refused_at_once(
    spark: "SparkSession", store: Store, arguments: dict[str, object], said: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        cordwood.spark.table(spark, store.path, "a", **arguments)  # type: ignore[arg-type]

    assert said in str(refused.value)


def test_a_stream_reads_only_what_its_condition_leaves(
    spark: "SparkSession", store: Store, tmp_path: Path
) -> None:
    stream = (
        spark.readStream.format("cordwood")
        .option("subscribe", "a")
        .option("startingOffsets", "earliest")
        .option("where", "partition = 1 AND timestamp >= timestamp_millis(1110000)")
        .load(store.path)
    )
    query = (
        stream.writeStream.format("memory")
        .queryName("pruned_stream")
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()

    filtered = everything(spark, store.path).where(
        "partition = 1 AND timestamp >= timestamp_millis(1110000)"
    )
    assert rows(spark.table("pruned_stream")) == rows(filtered)
