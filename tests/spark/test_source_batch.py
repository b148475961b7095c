"""`spark.read.format("cordwood")`: every option, on a real session; rows are what was appended."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import cordwood
from cordwood.log.store.store import Store

from .spark_rows import Row, expected, rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

KAFKA = Path(__file__).parents[1] / "golden" / "kafka-4.3"
RECORDS = [
    cordwood.Record(b"v%d" % n, b"k%d" % (n % 4), (("h", b"%d" % n),) if n % 2 else (), 1000 + n)
    for n in range(40)
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store that stays open for writing: topic a in two partitions of 40, topic b with one."""
    config = {"retention.ms": "-1", "segment.records": "10", "key.index": "true"}
    with cordwood.open(tmp_path_factory.mktemp("store")) as opened:
        topic = opened.create_topic("a", partitions=2, config=config)
        for part in range(0, 40, 5):
            topic.append_many(RECORDS[part : part + 5], partition=0)
            topic.append_many(RECORDS[part : part + 5], partition=1)
        opened.create_topic("b").append(b"only")
        opened.maintain()
        yield opened


def read(spark: "SparkSession", path: object, **options: object) -> "DataFrame":
    choice: dict[str, Any] = (
        {} if {"assign", "subscribePattern", "subscribe"} & set(options) else {"subscribe": "a"}
    )
    texts = {name: str(value) for name, value in {**choice, **options}.items()}
    return spark.read.format("cordwood").options(**texts).load(str(path))


def test_rows_are_what_was_appended_and_the_source_needs_no_registration(
    spark: "SparkSession", store: Store
) -> None:
    frame = read(spark, store.path)

    assert rows(frame) == [row for row in all_rows(store) if row[0] == "a"]
    assert frame.columns == [
        "key",
        "value",
        "topic",
        "partition",
        "offset",
        "timestamp",
        "timestampType",
    ]


def test_registering_by_hand_works_too(spark: "SparkSession", store: Store) -> None:
    import cordwood.spark

    cordwood.spark.register(spark)

    assert read(spark, store.path, subscribe="b").count() == 1


def test_headers_are_there_when_asked_for(spark: "SparkSession", store: Store) -> None:
    frame = read(spark, store.path, includeHeaders=True, assign='{"a": [1]}')

    found = {row["offset"]: row["headers"] for row in frame.collect()}

    assert {
        offset: [(header["key"], bytes(header["value"])) for header in headers or ()]
        for offset, headers in found.items()
    } == {n: [("h", b"%d" % n)] if n % 2 else [] for n in range(40)}
    assert found[4] is None


def test_columns_leave_out_what_is_not_needed(spark: "SparkSession", store: Store) -> None:
    frame = read(spark, store.path, columns="offset,timestampType")

    assert frame.columns == ["offset", "timestampType"]
    assert frame.groupBy("timestampType").count().collect() == [(0, 80)]


def test_a_schema_written_by_the_user_does_the_same(spark: "SparkSession", store: Store) -> None:
    reader = (
        spark.read.format("cordwood").option("subscribe", "a").schema("value binary, offset long")
    )

    assert reader.load(store.path).count() == 80


@pytest.mark.parametrize(
    ("options", "expected_offsets"),
    [
        ({"subscribe": "a,b"}, [0, *sorted([*range(40)] * 2)]),
        ({"subscribePattern": "^[b-z]"}, [0]),
        ({"assign": '{"a": [1], "b": [0]}'}, [0, *range(40)]),
        (
            {
                "startingOffsets": '{"a": {"0": 35, "1": -2}}',
                "endingOffsets": '{"a": {"0": 38, "1": 3}}',
            },
            [0, 1, 2, 35, 36, 37],
        ),
        ({"startingTimestamp": 1036, "endingTimestamp": 1038}, [36, 36, 37, 37]),
        (
            {
                "startingOffsetsByTimestamp": '{"a": {"0": 1038, "1": 9999999}}',
                "startingOffsetsByTimestampStrategy": "latest",
            },
            [38, 39],
        ),
        ({"endingOffsetsByTimestamp": '{"a": {"0": 1001, "1": 1000}}'}, [0]),
        ({"key": "k3", "startingTimestamp": 1030}, [31, 31, 35, 35, 39, 39]),
        ({"key": "6b30", "keyEncoding": "hex", "endingTimestamp": 1001}, [0, 0]),
        ({"key": "nobody"}, []),
        ({"startingTimestamp": "-1m", "startingOffsetsByTimestampStrategy": "latest"}, []),
        ({"startingTimestamp": "1970-01-01T00:00:01.039Z", "endingTimestamp": "-1s"}, [39, 39]),
        ({"endingOffsets": '{"a": {"0": 2, "1": -1}}'}, [0, 1, *range(40)]),
        (
            {
                "startingOffsetsByTimestamp": '{"a": {"0": 1039, "1": "-3650000d"}}',
                "endingOffsetsByTimestamp": '{"a": {"0": "-1s", "1": 1001}}',
            },
            [0, 39],
        ),
        ({"key": "azM=", "keyEncoding": "base64", "endingTimestamp": 1008}, [3, 3, 7, 7]),
        ({"failOnDataLoss": "false", "endingOffsets": '{"a": {"0": 99, "1": 0}}'}, [*range(40)]),
        ({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "b"}, [0]),
    ],
)
def test_options_choose_what_is_read(
    spark: "SparkSession", store: Store, options: dict[str, object], expected_offsets: list[int]
) -> None:
    found = rows(read(spark, store.path, **options))

    assert sorted(row[2] for row in found) == sorted(expected_offsets)
    assert set(found) <= set(all_rows(store))


def all_rows(store: Store) -> list[Row]:
    """Everything that was appended, as rows."""
    return [
        row
        for name in store.topics()
        for number, log in enumerate(store.topic(name).partitions)
        for row in expected(log.read(), name, number)
    ]


@pytest.mark.parametrize(
    ("options", "tasks"),
    [
        ({}, 2),
        ({"minPartitions": 7}, 7),
        ({"maxRecordsPerPartition": 15}, 6),
        ({"maxBytesPerPartition": 1}, 8),
        ({"minPartitions": 3, "maxRecordsPerPartition": 4}, 20),
    ],
)
def test_options_choose_how_many_tasks_read_it(
    spark: "SparkSession", store: Store, options: dict[str, object], tasks: int
) -> None:
    frame = read(spark, store.path, **options)

    assert frame.rdd.getNumPartitions() >= tasks
    assert rows(frame) == [row for row in all_rows(store) if row[0] == "a"]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"subscribr": "a"}, "did you mean subscribe"),
        ({"subscribe": ","}, "subscribe = ,"),
        ({"subscribePattern": "("}, r"subscribePattern = \("),
        ({"subscribePattern": "^x"}, "subscribePattern = .x: matches no topic"),
        ({"assign": '{"a": 1}'}, "assign = "),
        ({"assign": '{"a": [7]}'}, "assign = a: the topic has no partition 7"),
        ({"startingOffsets": "{}"}, "startingOffsets = "),
        ({"startingOffsets": '{"a": {"0": 1}}'}, "startingOffsets = a-0: .* missing a-1"),
        ({"endingOffsets": "earliest"}, "endingOffsets = earliest"),
        (
            {"endingTimestamp": "2026-01-01T00:00:00"},
            "endingTimestamp = .* the time zone is missing",
        ),
        ({"startingOffsetsByTimestamp": "[]"}, r"startingOffsetsByTimestamp = \[\]"),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 1, "1": "-1h"}}'}, "ByTimestampStrategy=late"),
        ({"endingOffsetsByTimestamp": '{"a": {"0": true}}'}, "endingOffsetsByTimestamp = "),
        ({"startingOffsetsByTimestampStrategy": "none"}, "TimestampStrategy = none"),
        ({"failOnDataLoss": "perhaps"}, "failOnDataLoss = perhaps"),
        ({"includeHeaders": "2"}, "includeHeaders = 2"),
        ({"minPartitions": "few"}, "minPartitions = few"),
        ({"maxRecordsPerPartition": "0"}, "maxRecordsPerPartition = 0"),
        ({"maxBytesPerPartition": "big"}, "maxBytesPerPartition = big"),
        ({"columns": "value,price"}, "columns = value,price"),
        ({"key": "x", "keyEncoding": "hex"}, "key = x"),
        ({"group": "g"}, "group = g: only streams"),
        ({"endingOffsets": '{"a": {"0": 99, "1": 0}}'}, "endingOffsets is offset 99"),
        ({"subscribe": "nobody"}, "known are: a, b"),
        ({"startingOffsets": "latest"}, "cannot start at the end"),
        ({"startingTimestamp": "soon"}, "startingTimestamp = soon"),
        ({"startingOffsets": '{"a": {"0": 99, "1": 0}}'}, "a-0 ends at offset 40"),
        (
            {
                "startingOffsets": '{"a": {"0": 9, "1": 0}}',
                "endingOffsets": '{"a": {"0": 8, "1": 0}}',
            },
            "which is offset 9 of a-0",
        ),
    ],
)
def test_bad_options_fail_with_a_message_that_names_them(
    spark: "SparkSession", store: Store, options: dict[str, object], words: str
) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException, match=words):
        read(spark, store.path, **options).count()


def test_a_schema_of_other_types_is_refused(spark: "SparkSession", store: Store) -> None:
    from pyspark.errors import AnalysisException

    reader = spark.read.format("cordwood").option("subscribe", "a").schema("value string")

    with pytest.raises(AnalysisException, match="schema = value string"):
        reader.load(store.path).count()


def test_a_frame_is_a_snapshot_and_the_next_load_sees_more(
    spark: "SparkSession", tmp_path: Path
) -> None:
    with cordwood.open(tmp_path) as store:
        topic = store.create_topic("a")
        topic.append(b"1")
        frame = read(spark, tmp_path)
        assert frame.count() == 1
        topic.append(b"2")

        assert frame.count() == 1
        assert read(spark, tmp_path).count() == 2


def test_sql_reads_a_log_as_a_view(spark: "SparkSession", store: Store) -> None:
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW a_log USING cordwood "
        f"OPTIONS (path '{store.path}', subscribe 'a', columns 'partition,offset')"
    )

    [row] = spark.sql("SELECT count(*), max(offset) FROM a_log WHERE partition = 1").collect()

    assert tuple(row) == (40, 39)


def test_several_data_directories_are_one_store(spark: "SparkSession", tmp_path: Path) -> None:
    directories = [str(tmp_path / "one"), str(tmp_path / "two")]
    with cordwood.open(directories[0], data_dirs=directories[1:]) as store:
        store.create_topic("a", partitions=4).append_many([(None, b"v")] * 4, partition=3)
        store.topic("a").append(b"v", partition=2)

        frame = spark.read.format("cordwood").option("subscribe", "a").load(directories)

        assert {row[1] for row in rows(frame)} == {2, 3}


@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_directory_that_kafka_wrote_is_a_table(spark: "SparkSession", scheme: str) -> None:
    partitions = [
        found
        for found in json.loads((KAFKA / "expected.json").read_text())["partitions"]
        if not found["topic"].startswith("__")
    ]
    wanted = sorted(
        (found["topic"], found["partition"], row[0], row[1], *_latin(row[2:4]))
        for found in partitions
        for row in found["records"]
    )

    frame = read(spark, f"{scheme}{KAFKA / 'data'}", subscribePattern=".*")

    assert rows(frame) == wanted
    kinds = frame.where("topic = 'append-time'").select("timestampType").distinct().collect()
    assert kinds == [(1,)]


def test_what_was_aborted_is_left_out_on_request(spark: "SparkSession") -> None:
    level = {"kafka.isolation.level": "read_committed"}
    with cordwood.open(KAFKA / "data", read_only=True) as store:
        log = store.topic("transactions").partition(0)
        committed = expected(log.read(isolation="read_committed"), "transactions")
        everything = expected(log.read(), "transactions")

    frame = read(spark, KAFKA / "data", subscribe="transactions", **level)

    assert rows(frame) == committed
    assert 0 < len(committed) < len(everything)
    assert rows(read(spark, KAFKA / "data", subscribe="transactions")) == everything


def _latin(texts: list[str | None]) -> list[bytes | None]:
    return [None if text is None else text.encode("latin-1") for text in texts]


def test_the_archive_of_a_topic_is_a_table(spark: "SparkSession", tmp_path: Path) -> None:
    url = f"file://{tmp_path / 'archive'}"
    config = {"archive.url": url, "segment.records": "10", "local.retention.bytes": "0"}
    with cordwood.open(tmp_path / "data") as store:
        topic = store.create_topic("a", config={**config, "file.delete.delay.ms": "0"})
        for n in range(35):
            topic.append(b"v%d" % n, key=b"k%d" % n)
        store.archive_now()
        store.maintain()
        whole = expected(topic.partition(0).read(), "a")

        assert topic.partition(0).state.start == 30
        assert rows(read(spark, tmp_path / "data")) == whole
    assert rows(read(spark, url)) == whole[:30]
    assert rows(read(spark, url, startingOffsets='{"a": {"0": 15}}', key="k17")) == [whole[17]]
