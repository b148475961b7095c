"""Queries write through a running broker: at least once, and where Java's clients would."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

import pytest

import cordwood
from cordwood.errors import ConfigError, StorageError
from cordwood.log.topics.topic import partition_for
from cordwood.spark.sink.broker_writer import producer_settings, send_rows
from cordwood.spark.sink.sink_columns import SinkColumns
from cordwood.spark.sink.sink_options import SinkOptions
from cordwood.testing import allow

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from cordwood.format.record import Record


def records(broker: cordwood.Broker, topic: str) -> dict[int, list[Record]]:
    with cordwood.open(broker.data_dir, read_only=True) as store:
        return {log.partition: list(log.read(0)) for log in store.topic(topic).partitions}


def test_rows_of_a_batch_and_of_a_stream_arrive(spark: SparkSession, tmp_path: Path) -> None:
    lines = tmp_path / "lines"
    lines.mkdir()
    (lines / "a").write_text("one\ntwo\nthree")
    frame = spark.range(0, 200, 1, 2).selectExpr(
        "concat('key ', id % 20) AS key",
        "cast(id AS string) AS value",
        "timestamp_millis(1700000000000 + id) AS timestamp",
        "array(named_struct('key', 'h', 'value', cast('x' AS binary))) AS headers",
    )
    # Records dated long ago stay, however slow the machine is.
    with cordwood.Broker(config={"log.retention.ms": -1}) as broker:
        broker.create_topic("orders", partitions=3)
        broker.create_topic("lines", partitions=1)
        address = {"kafka.bootstrap.servers": broker.bootstrap_servers}

        frame.write.format("cordwood").options(topic="orders", **address).mode("append").save()
        stream = spark.readStream.text(str(lines)).writeStream.format("cordwood")
        stream.options(
            topic="lines", checkpointLocation=str(tmp_path / "check"), **address
        ).trigger(availableNow=True).start().awaitTermination()

        orders, found_lines = records(broker, "orders"), records(broker, "lines")
    found = [record for log in orders.values() for record in log]
    assert sorted(int(record.value or b"") for record in found) == list(range(200))
    for partition, log in orders.items():
        assert all(partition_for(record.key or b"", 3) == partition for record in log)
    assert {record.timestamp_ms for record in found} == set(
        range(1_700_000_000_000, 1_700_000_000_200)
    )
    assert all(list(record.headers) == [("h", b"x")] for record in found)
    assert [record.value for record in found_lines[0]] == [b"one", b"two", b"three"]


def test_crc32_puts_keys_where_librdkafka_does_by_default(spark: SparkSession) -> None:
    from confluent_kafka import Producer

    keys = [f"key {number}" for number in range(60)]
    frame = spark.createDataFrame([(key, key) for key in keys], "key STRING, value STRING")
    with cordwood.Broker() as broker:
        for topic in ("librdkafka", "by-broker", "by-path"):
            broker.create_topic(topic, partitions=5)
        address = {"kafka.bootstrap.servers": broker.bootstrap_servers}
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
        for key in keys:
            producer.produce("librdkafka", key=key, value=key)
        assert producer.flush(60) == 0

        for topic, where in (("by-broker", address), ("by-path", {"path": broker.data_dir})):
            sink = frame.write.format("cordwood").options(partitioner="crc32", topic=topic, **where)
            sink.mode("append").save()

        found = {topic: placed(broker, topic) for topic in ("librdkafka", "by-broker", "by-path")}
    assert len(found["librdkafka"]) == 60
    assert found["by-path"] == found["by-broker"] == found["librdkafka"]


def placed(broker: cordwood.Broker, topic: str) -> dict[bytes | None, int]:
    """The partition of each key."""
    logs = records(broker, topic)
    return {record.key: partition for partition, log in logs.items() for record in log}


def options(address: str = "127.0.0.1:1", **producer: str) -> SinkOptions:
    return SinkOptions(topic="orders", producer={"kafka.bootstrap.servers": address, **producer})


def test_the_producer_hashes_keys_as_java_does_and_sends_nothing_twice() -> None:
    settings = producer_settings(options(**{"kafka.linger.ms": "7"}))

    assert settings["partitioner"] == "murmur2_random"
    assert producer_settings(options(**{"kafka.partitioner": "random"}))["partitioner"] == "random"
    assert settings["enable.idempotence"] == "true"
    assert settings["linger.ms"] == "7"


def test_what_no_broker_takes_is_an_error() -> None:
    import pyarrow as pa

    batch = pa.RecordBatch.from_arrays([pa.array([b"1"])], names=["value"])
    patience = {"kafka.delivery.timeout.ms": "300", "kafka.request.timeout.ms": "200"}
    unreachable = options(**patience, **{"kafka.linger.ms": "0"})

    with pytest.raises(StorageError, match="could not be delivered"):
        send_rows([batch], unreachable, SinkColumns(value=0))


def test_a_setting_that_the_producer_does_not_know_is_named() -> None:
    with pytest.raises(ConfigError, match=r"no\.such\.setting"):
        send_rows([], options(**{"kafka.no.such.setting": "1"}), SinkColumns(value=0))


def test_without_the_client_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)

    with pytest.raises(ConfigError, match="pip install confluent-kafka"):
        send_rows([], options(), SinkColumns(value=0))


def test_rows_written_to_the_directory_of_a_running_broker_reach_its_clients(
    spark: SparkSession,
) -> None:
    from confluent_kafka import Consumer

    frame = spark.range(0, 300, 1, 2).selectExpr("cast(id AS string) AS value")
    with cordwood.Broker(topics={"orders": 2}) as broker:
        consumer = Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "watching",
                "auto.offset.reset": "earliest",
            }
        )
        consumer.subscribe(["orders"])
        try:
            writer = frame.write.format("cordwood").option("topic", "orders").mode("append")
            writer.save(broker.data_dir)
            found: list[int] = []
            deadline_s = time.monotonic() + 60
            while len(found) < 300 and time.monotonic() < deadline_s:
                message = consumer.poll(1.0)
                if message is not None and message.error() is None:
                    found.append(int(message.value() or b""))
        finally:
            consumer.close()

    assert sorted(found) == list(range(300))


def test_rows_reach_a_broker_with_tls_and_users(
    spark: SparkSession, capfd: pytest.CaptureFixture[str]
) -> None:
    frame = spark.range(0, 100, 1, 2).selectExpr("cast(id AS string) AS value")
    with cordwood.Broker(
        security="sasl_ssl",
        users={"spark": "hunter2"},
        acls=[allow("spark", "write", topic="orders")],
        topics={"orders": 2, "others": 1},
    ) as broker:
        # The names that Spark's own Kafka sink has for them.
        connection = {f"kafka.{key}": text for key, text in broker.java_config("spark").items()}

        def write(topic: str, **more: str) -> None:
            writer = frame.write.format("cordwood").options(topic=topic, **connection, **more)
            writer.mode("append").save()

        write("orders")
        with pytest.raises(Exception, match=r"(?i)authorization") as refused:
            write("others")

        found = [record for log in records(broker, "orders").values() for record in log]
    assert sorted(int(record.value or b"") for record in found) == list(range(100))
    assert "hunter2" not in str(refused.value)
    assert "hunter2" not in "".join(capfd.readouterr())


def test_a_producer_that_cannot_be_made_does_not_show_its_password() -> None:
    wrong = options(
        **{
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.username": "spark",
            "kafka.sasl.password": "hunter2",
            "kafka.linger.ms": "hunter2",
        }
    )

    with pytest.raises(ConfigError, match=r"linger\.ms") as raised:
        send_rows([], wrong, SinkColumns(value=0))

    assert "hunter2" not in f"{raised.value!r} {raised.value.__cause__!r}"
