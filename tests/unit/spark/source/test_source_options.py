"""Options mean what they mean to Spark's Kafka source; what cannot be used is refused by name."""

import pickle

import pytest

from cordwood.errors import ConfigError
from cordwood.log.reading.time_lookup import EARLIEST, LATEST
from cordwood.quantities import MIB, TimestampMs
from cordwood.spark.source.boundaries import Moment
from cordwood.spark.source.row_schema import ALL_COLUMNS, DEFAULT_COLUMNS
from cordwood.spark.source.source_options import SourceOptions

LEAST = {"path": "data", "subscribe": "orders"}


def batch(**options: str) -> SourceOptions:
    return SourceOptions.for_batch({**LEAST, **options})


def stream(**options: str) -> SourceOptions:
    return SourceOptions.for_stream({**LEAST, **options})


def test_a_batch_query_reads_from_the_earliest_to_the_latest_by_default() -> None:
    options = batch()

    assert options.starting.everywhere == EARLIEST
    assert options.ending.everywhere == LATEST
    assert options.fails_on_data_loss


def test_a_stream_starts_at_the_latest_by_default() -> None:
    assert stream().starting.everywhere == LATEST


def test_option_names_are_read_in_any_case_as_spark_hands_them_over() -> None:
    options = SourceOptions.for_batch(
        {"path": "data", "SUBSCRIBE": "a, b", "minpartitions": "4", "failOnDataLoss": "False"}
    )

    assert options.topics.names == {"a", "b"}
    assert options.partitions_min == 4
    assert not options.fails_on_data_loss


def test_several_directories_are_one_store() -> None:
    options = SourceOptions.for_batch({"paths": '["d1", "d2"]', "subscribe": "a"})

    assert options.paths == ("d1", "d2")


def test_a_timestamp_wins_over_timestamps_by_partition_and_those_over_offsets() -> None:
    by_partition = '{"orders": {"0": 5}}'

    first = batch(
        startingTimestamp="7",
        startingOffsetsByTimestamp=by_partition,
        startingOffsets="earliest",
        endingOffsetsByTimestamp=by_partition,
        endingOffsets="latest",
    )

    assert first.starting.of(("orders", 0)) == Moment(timestamp_ms=7)
    assert first.ending.of(("orders", 0)) == Moment(timestamp_ms=5)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1760000000000", 1_760_000_000_000),
        ("-10m", 1_000_000 - 600_000),
        ("-90s", 1_000_000 - 90_000),
        ("-2000000ms", 0),
        ("1970-01-01T00:00:05Z", 5_000),
        ("1970-01-01T01:00:05.250+01:00", 5_250),
    ],
)
def test_times_are_absolute_or_told_from_now(text: str, expected: int) -> None:
    moment = batch(startingTimestamp=text).starting.of(("orders", 0))

    assert isinstance(moment, Moment)
    assert moment.at(TimestampMs(1_000_000)) == expected


def test_times_by_partition_may_be_told_from_now_too() -> None:
    boundary = batch(startingOffsetsByTimestamp='{"orders": {"0": "-1s", "1": 7}}').starting

    assert boundary.of(("orders", 0)) == Moment(age_ms=1000)
    assert boundary.of(("orders", 1)) == Moment(timestamp_ms=7)


def test_offsets_of_a_progress_report_can_be_given_as_they_are() -> None:
    text = '{"orders": {"0": 23, "1": -2}, "@from": {"orders": {"0": 1}}, "@ids": {"orders": "x"}}'

    boundary = batch(startingOffsets=text).starting

    assert boundary.offsets == {("orders", 0): 23, ("orders", 1): EARLIEST}
    assert boundary.topic_ids == {"orders": "x"}


def test_limits_of_a_stream_take_units() -> None:
    limits = stream(
        maxOffsetsPerTrigger="100",
        minOffsetsPerTrigger="10",
        maxTriggerDelay="2m",
        maxBytesPerTrigger="64MiB",
    ).limits

    assert (limits.offsets_max, limits.offsets_min) == (100, 10)
    assert limits.delay_ms_max == 120_000
    assert limits.bytes_max == 64 * MIB


def test_limits_of_a_stream_have_no_effect_on_a_batch_query() -> None:
    assert batch(maxOffsetsPerTrigger="1").limits.offsets_max is None


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, DEFAULT_COLUMNS),
        ({"includeHeaders": "true"}, ALL_COLUMNS),
        ({"columns": "offset, timestamptype"}, ("offset", "timestampType")),
        ({"columns": "headers,key"}, ("headers", "key")),
    ],
)
def test_columns_are_kafkas_unless_chosen(
    options: dict[str, str], expected: tuple[str, ...]
) -> None:
    assert SourceOptions.columns_from({**LEAST, **options}) == expected


@pytest.mark.parametrize(
    ("key", "encoding", "expected"),
    [("user:1", None, b"user:1"), ("00ff", "hex", b"\x00\xff"), ("AAE=", "base64", b"\x00\x01")],
)
def test_a_key_is_text_unless_said_otherwise(
    key: str, encoding: str | None, expected: bytes
) -> None:
    options = {"key": key} if encoding is None else {"key": key, "keyEncoding": encoding}

    assert batch(**options).key == expected


def test_settings_of_a_kafka_consumer_pass_where_they_change_nothing() -> None:
    options = SourceOptions.for_batch(
        {
            **LEAST,
            "kafka.bootstrap.servers": "h:9092",
            "kafka.group.id": "g",
            "kafka.isolation.level": "read_uncommitted",
            "kafkaConsumer.pollTimeoutMs": "5",
            "groupIdPrefix": "p",
        }
    )

    assert options.group is None


def test_options_survive_the_way_to_an_executor() -> None:
    options = SourceOptions.for_stream({"path": "d", "subscribePattern": "ord.*", "key": "k"})

    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("options", "key", "rule"),
    [
        ({"subscribr": "a"}, "subscribr", "did you mean subscribe"),
        ({"zzz": "a"}, "zzz", "unknown option"),
        ({"subscribe": " , "}, "subscribe", "topic names"),
        ({"assign": '{"a": [0]}'}, "subscribe", "exactly one of"),
        ({"failOnDataLoss": "maybe"}, "failOnDataLoss", "true or false"),
        ({"includeHeaders": "1"}, "includeHeaders", "true or false"),
        ({"minPartitions": "0"}, "minPartitions", "of 1 or more"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition", "of 1 or more"),
        ({"maxBytesPerPartition": "0"}, "maxBytesPerPartition", "more than 0"),
        ({"columns": "key,colour"}, "columns", "'colour'"),
        ({"columns": ""}, "columns", "some of"),
        ({"columns": "key,KEY"}, "columns", "each once"),
        ({"keyEncoding": "hex"}, "keyEncoding", "without the option key"),
        ({"key": "xyz", "keyEncoding": "hex"}, "key", "must be hex"),
        ({"key": "k", "keyEncoding": "ebcdic"}, "keyEncoding", "one of"),
        ({"startingOffsets": "newest"}, "startingOffsets", "earliest, latest, or JSON"),
        ({"startingOffsets": '{"a": {"x": 1}}'}, "startingOffsets", "unknown partition 'x'"),
        ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets", "invalid offset -3"),
        ({"startingOffsets": '{"a": [1]}'}, "startingOffsets", "each partition"),
        ({"startingTimestamp": "-5"}, "startingTimestamp", "an age like -10m"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp", "milliseconds since 1970"),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, "startingTimestamp", "zone is missing"),
        ({"startingTimestamp": "1969-01-01T00:00:00Z"}, "startingTimestamp", "1970"),
        ({"startingTimestamp": "9" * 30}, "startingTimestamp", "is too large"),
        (
            {"startingOffsetsByTimestamp": '{"a": {"0": null}}'},
            "startingOffsetsByTimestamp",
            "JSON like",
        ),
        (
            {"startingOffsetsByTimestampStrategy": "first"},
            "startingOffsetsByTimestampStrategy",
            "error or latest",
        ),
        ({"kafka.auto.offset.reset": "x"}, "kafka.auto.offset.reset", "use startingOffsets"),
        (
            {"kafka.isolation.level": "committed"},
            "kafka.isolation.level",
            "read_uncommitted or read_committed",
        ),
        (
            {"kafka.isolation.level": "read_committed", "key": "a"},
            "kafka.isolation.level",
            "omit this or the option key",
        ),
    ],
)
def test_what_cannot_be_used_is_refused_by_name(
    options: dict[str, str], key: str, rule: str
) -> None:
    def parse() -> None:
        SourceOptions.columns_from({**LEAST, **options})
        stream(**options)

    with pytest.raises(ConfigError, match="=") as refused:
        parse()

    assert refused.value.key == key
    assert rule in refused.value.reason


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"path": "data"}, "subscribe"),
        ({"subscribe": "a"}, "path"),
        ({"path": " ", "subscribe": "a"}, "path"),
        ({"paths": "no json", "subscribe": "a"}, "paths"),
        ({"path": "d", "subscribePattern": "("}, "subscribePattern"),
        ({"path": "d", "subscribePattern": " "}, "subscribePattern"),
        ({"path": "d", "assign": "a"}, "assign"),
        ({"path": "d", "assign": '{"a": []}'}, "assign"),
        ({"path": "d", "assign": '{"a": ["0"]}'}, "assign"),
        ({"path": "d", "assign": '{"a": [-1]}'}, "assign"),
    ],
)
def test_a_query_must_say_what_it_reads(options: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SourceOptions.for_batch(options)

    assert refused.value.key == key


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "endingOffsets"),
        ({"endingOffsets": "now"}, "endingOffsets"),
        ({"endingTimestamp": "now"}, "endingTimestamp"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp"),
        ({"group": "g"}, "group"),
    ],
)
def test_a_batch_query_refuses_what_it_cannot_use(options: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        batch(**options)

    assert refused.value.key == key


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"endingOffsets": "latest"}, "endingOffsets"),
        ({"endingTimestamp": "5"}, "endingTimestamp"),
        ({"endingOffsetsByTimestamp": "{}"}, "endingOffsetsByTimestamp"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger"),
        ({"minOffsetsPerTrigger": "-1"}, "minOffsetsPerTrigger"),
        ({"maxBytesPerTrigger": "0"}, "maxBytesPerTrigger"),
        ({"group": " "}, "group"),
    ],
)
def test_a_stream_refuses_what_it_cannot_use(options: dict[str, str], key: str) -> None:
    with pytest.raises(ConfigError) as refused:
        stream(**options)

    assert refused.value.key == key


def test_a_pattern_is_searched_for_in_names_and_never_finds_internal_topics() -> None:
    choice = SourceOptions.for_batch({"path": "d", "subscribePattern": "o[rf]+"}).topics

    assert choice.wants("reorders", 3)
    assert choice.wants("offers", 0)
    assert not choice.wants("payments", 0)
    assert not choice.wants("__consumer_offsets", 0)
