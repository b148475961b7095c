"""Options of the sink: what they mean, and what is said about those that mean nothing."""

import os
import pickle

import pytest

from cordwood.errors import ConfigError
from cordwood.format.compression import Codec
from cordwood.security.secret import Secret
from cordwood.spark.sink.partitioner import Partitioner
from cordwood.spark.sink.sink_options import SinkOptions, plain_path


def test_the_directory_of_a_store_is_all_that_is_needed() -> None:
    options = SinkOptions.for_batch({"path": "/data/log"})

    assert options.path == "/data/log"
    assert not options.is_for_broker
    assert options.partitions is None


def test_a_relative_directory_is_meant_from_where_the_driver_is() -> None:
    assert SinkOptions.for_batch({"path": "data"}).path == os.path.abspath("data")


def test_every_option_has_its_place() -> None:
    options = SinkOptions.for_batch(
        {
            "path": "file:///data/log/",
            "paths": '["/more"]',
            "topic": "orders",
            "partitions": "6",
            "partitioner": "CRC32",
            "compression": "zstd",
            "applicationid": "etl",
            "batchnumber": "12",
            "timeout": "5m",
        }
    )

    assert options == SinkOptions(
        paths=("/data/log", "/more"),
        topic="orders",
        partitions=6,
        partitioner=Partitioner.CRC32,
        codec=Codec.ZSTD,
        application="etl",
        number=12,
        timeout_s=300.0,
    )


def test_a_broker_is_told_by_its_address_and_gets_the_settings_of_its_producer() -> None:
    options = SinkOptions.for_stream(
        {"kafka.bootstrap.servers": "here:9092", "kafka.acks": "1", "topic": "orders"}
    )

    assert options.is_for_broker
    assert options.producer == {"kafka.bootstrap.servers": "here:9092", "kafka.acks": "1"}


@pytest.mark.parametrize("options", [{}, {"path": "/x", "kafka.bootstrap.servers": "here:9092"}])
def test_either_a_store_or_a_broker_must_be_given(options: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"kafka\.bootstrap\.servers"):
        SinkOptions.for_batch(options)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("topic", "a/b"),
        ("topic", "__consumer_offsets"),
        ("partitions", "0"),
        ("partitions", "many"),
        ("compression", "brotli"),
        ("kafka.compression.type", "brotli"),
        ("partitioner", "md5"),
        ("kafka.partitioner", "consistent"),
        ("timeout", "soon"),
        ("timeout", "0"),
        ("paths", "{"),
        ("applicationid", " "),
        ("batchnumber", "-1"),
        ("kafka.key.serializer", "x"),
    ],
)
def test_an_option_that_cannot_be_used_is_named(name: str, text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        SinkOptions.for_stream({"path": "/x", name: text})

    assert refused.value.key.lower() == name


def test_a_producers_own_setting_decides_the_partitioner_unless_the_option_does_too() -> None:
    theirs = {"kafka.bootstrap.servers": "here:9092", "kafka.partitioner": "consistent"}

    assert SinkOptions.for_batch(theirs).producer["kafka.partitioner"] == "consistent"
    with pytest.raises(ConfigError, match="omit one of them"):
        SinkOptions.for_batch({**theirs, "partitioner": "crc32"})


def test_a_misspelt_option_is_refused_with_the_one_that_was_meant() -> None:
    with pytest.raises(ConfigError, match="did you mean partitions"):
        SinkOptions.for_batch({"path": "/x", "partition": "3"})


@pytest.mark.parametrize("path", ["s3://bucket/log", "hdfs://host/log", " "])
def test_a_store_lies_in_a_directory(path: str) -> None:
    with pytest.raises(ConfigError, match="directory"):
        SinkOptions.for_batch({"path": path})


@pytest.mark.parametrize("given", [{"applicationid": "etl"}, {"batchnumber": "1"}])
def test_a_batch_query_is_numbered_by_both_options_or_none(given: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="both applicationId and batchNumber"):
        SinkOptions.for_batch({"path": "/x", **given})


def test_a_stream_numbers_its_batches_itself() -> None:
    with pytest.raises(ConfigError, match="numbers its batches itself"):
        SinkOptions.for_stream({"path": "/x", "applicationid": "etl", "batchnumber": "1"})


@pytest.mark.parametrize("name", ["partitions", "applicationId", "batchNumber", "timeout"])
def test_options_of_stores_are_refused_for_brokers(name: str) -> None:
    with pytest.raises(ConfigError, match="is for stores"):
        SinkOptions._parse({"kafka.bootstrap.servers": "here:9092", name: "1"})


def test_what_spark_adds_by_itself_is_passed_over() -> None:
    options = SinkOptions.for_stream(
        {"path": "/x", "checkpointlocation": "file:/c/", "queryname": "q", "includeheaders": "true"}
    )

    assert options.checkpoint == "/c"


@pytest.mark.parametrize(
    ("path", "plain"),
    [
        ("file:/x/y", "/x/y"),
        ("file:///x/y/", "/x/y"),
        ("file://localhost/x", "/x"),
        ("/x", "/x"),
        ("/", "/"),
        ("s3://b/x/", "s3://b/x"),
        ("relative", "relative"),
    ],
)
def test_paths_are_the_same_however_spark_writes_them(path: str, plain: str) -> None:
    assert plain_path(path) == plain


_BROKER = {"kafka.bootstrap.servers": "log:9093", "topic": "orders"}
_JAAS = (
    "org.apache.kafka.common.security.scram.ScramLoginModule required "
    'username="alice" password="hunter2";'
)


def test_how_to_connect_is_told_as_to_sparks_kafka_sink() -> None:
    found = SinkOptions.for_batch(
        {
            **_BROKER,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": _JAAS,
            "kafka.ssl.truststore.location": "/etc/ca.pem",
            "kafka.ssl.crl.location": "/etc/crl.pem",
            "kafka.linger.ms": "5",
        }
    )

    assert found.producer == {
        "kafka.bootstrap.servers": "log:9093",
        "kafka.ssl.crl.location": "/etc/crl.pem",
        "kafka.linger.ms": "5",
    }
    assert found.security is not None
    assert found.security.user == "alice"
    assert found.security.password == Secret("hunter2")
    assert "hunter2" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found


def test_what_is_wrong_with_it_is_named_without_the_password() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.sasl\.mechanism = PLAIN") as raised:
        SinkOptions.for_batch(
            {
                **_BROKER,
                "kafka.security.protocol": "SASL_SSL",
                "kafka.sasl.mechanism": "PLAIN",
                "kafka.sasl.jaas.config": _JAAS,
            }
        )

    assert "hunter2" not in repr(raised.value)


def test_tokens_and_tickets_are_left_to_the_producer() -> None:
    options = {
        **_BROKER,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.method": "oidc",
    }

    found = SinkOptions.for_batch(options)

    assert found.security is None
    assert found.producer["kafka.sasl.oauthbearer.method"] == "oidc"


def test_secrets_that_are_left_to_the_producer_are_not_shown() -> None:
    options = {
        **_BROKER,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "OAUTHBEARER",
        "kafka.sasl.oauthbearer.client.secret": "hunter2",
    }

    found = SinkOptions.for_batch(options)

    assert found.producer["kafka.sasl.oauthbearer.client.secret"] == "hunter2"
    assert "hunter2" not in repr(found)
