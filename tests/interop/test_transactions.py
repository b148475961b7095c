"""Transactions of Kafka's own producer and tools: version 2, with an epoch for each."""

from __future__ import annotations

import re
from pathlib import Path

import cordwood
from cordwood.format.transaction_records import (
    TransactionState,
    decode_transaction_key,
    decode_transaction_value,
    encode_transaction_key,
    encode_transaction_value,
)
from cordwood.log.transactions.transaction_entry import Outcome
from fakes.client_batches import client_batch
from interop.java_tools import JavaTools
from interop.kafka_peer import KafkaTools, StartBroker


def committed(broker: cordwood.Broker, topic: str) -> list[bytes | None]:
    return [
        record.value
        for log in broker.store.topic(topic).partitions
        for record in log.read(isolation="read_committed")
    ]


def perf(tools: JavaTools, topic: str, transactional_id: str, count: int) -> None:
    """Kafka's producer, which commits a transaction every few milliseconds."""
    tools.run(
        "producer-perf-test", "--topic", topic, "--num-records", str(count),
        "--record-size", "20", "--throughput", "-1",
        "--transactional-id", transactional_id, "--transaction-duration-ms", "5",
    )  # fmt: skip


def test_kafka_s_producer_takes_version_2_and_gets_an_epoch_for_each_transaction(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    broker.create_topic("perf", partitions=3)

    perf(tools, "perf", "perf-id", 5000)

    metadata = broker.store.transactions.find("perf-id")
    assert metadata is not None
    assert metadata.client_version == 2
    assert metadata.epoch > 3
    assert len(committed(broker, "perf")) == 5000


def test_kafka_s_copier_reads_and_writes_in_one_transaction(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    """Its offsets and its records count together, also where it aborts at random."""
    source = broker.create_topic("source")
    broker.create_topic("copy")
    for number in range(200):
        source.append(b"%d" % number)

    tools.run(
        "transactional-message-copier",
        "--transactional-id", "copier", "--consumer-group", "copiers",
        "--input-topic", "source", "--input-partition", "0", "--output-topic", "copy",
        "--max-messages", "200", "--transaction-size", "20", "--enable-random-aborts",
    )  # fmt: skip

    assert committed(broker, "copy") == [b"%d" % number for number in range(200)]
    assert broker.store.group("copiers").committed("source", 0) == 200


def test_the_tool_lists_describes_and_ends_transactions(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    broker.create_topic("open")
    with broker.store.transaction("described") as transaction:
        transaction.append("open", b"x")

        listed = tools.run("transactions", "list")
        described = tools.run("transactions", "describe", "--transactional-id", "described")
        producers = tools.run(
            "transactions", "describe-producers", "--topic", "open", "--partition", "0"
        )
        hanging = tools.run(
            "transactions", "find-hanging", "--topic", "open", "--max-transaction-timeout", "0"
        )

    assert ["described", "Ongoing"] in [[row[0], row[3]] for row in listed.rows if len(row) == 4]
    assert re.search(r"described\s+\d+\s+0\s+Ongoing\s+60000\s+\d+.*open-0", described.output)
    assert re.search(r"\d+\s+0\s+-1\s+0\s+\d+\s+0", producers.output)
    assert "open" not in [row[0] for row in hanging.rows]


def test_the_tool_finds_and_ends_a_transaction_that_hangs(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    log = broker.create_topic("hanging").partition(0)
    batch = client_batch(b"x", producer_id=10**9, producer_epoch=0, sequence=0, transactional=True)
    log.batches.append_batch(batch)

    found = tools.run(
        "transactions", "find-hanging", "--topic", "hanging", "--max-transaction-timeout", "0"
    )
    tools.run(
        "transactions", "abort", "--topic", "hanging", "--partition", "0", "--start-offset", "0"
    )
    after = tools.run(
        "transactions", "find-hanging", "--topic", "hanging", "--max-transaction-timeout", "0"
    )

    assert [row[:3] for row in found.rows[1:]] == [["hanging", "0", "1000000000"]]
    assert after.rows[1:] == []
    assert log.last_stable_offset == log.high_watermark == 2


def test_the_tool_lists_by_pattern_and_by_age(broker: cordwood.Broker, tools: JavaTools) -> None:
    broker.create_topic("filtered")
    with broker.store.transaction("filter-closed") as transaction:
        transaction.append("filtered", b"x")
    with broker.store.transaction("filter-open") as transaction:
        transaction.append("filtered", b"x")

        by_pattern = tools.run("transactions", "list", "--transactional-id-pattern", "filter-.*")
        by_age = tools.run(
            "transactions", "list", "--duration-filter", "3600000",
            "--transactional-id-pattern", "filter-.*",
        )  # fmt: skip

    assert [(row[0], row[3]) for row in by_pattern.rows[1:]] == [
        ("filter-closed", "CompleteCommit"),
        ("filter-open", "Ongoing"),
    ]
    assert by_age.rows[1:] == []


def test_force_terminate_fences_a_producer(broker: cordwood.Broker, tools: JavaTools) -> None:
    broker.create_topic("forced")
    outcomes: list[Outcome] = []
    broker.store.transactions.init_producer(
        "forced", timeout_ms=60_000, expected=None, done=outcomes.append
    )

    tools.run("transactions", "forceTerminateTransaction", "--transactionalId", "forced")

    metadata = broker.store.transactions.find("forced")
    assert metadata is not None
    assert metadata.epoch == 1


def test_our_records_are_those_of_kafka(
    kafka: KafkaTools, broker: cordwood.Broker, tools: JavaTools, start_broker: StartBroker,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Kafka's decoder reads ours; our codec writes Kafka's bytes again."""
    broker.create_topic("decoded")
    perf(tools, "decoded", "decoded-id", 500)
    log = broker.store.topic("__transaction_state").partition(0)
    log.sync()

    dumped = kafka.dump_segments(
        *sorted(Path(log.directory).glob("*.log")), options=("--transaction-log-decoder",)
    )

    assert '"transactionalId":"decoded-id"' in dumped
    for name in ("transactionStatus", "clientTransactionVersion", "producerEpoch"):
        assert name in dumped
    assert "isvalid: false" not in dumped

    directory = tmp_path / "kafka-logs"
    theirs = start_broker(directory)
    kafka.topics(theirs.bootstrap_servers, "--create", "--topic", "t")
    perf(JavaTools(kafka, theirs.bootstrap_servers), "t", "theirs", 500)
    theirs.stop()
    count = 0
    with cordwood.open(directory, read_only=True) as store:
        for partition in store.topic("__transaction_state").partitions:
            for record in partition.read():
                assert record.key is not None
                assert record.value is not None
                assert encode_transaction_key(decode_transaction_key(record.key)) == record.key
                value = decode_transaction_value(record.value)
                assert encode_transaction_value(value) == record.value
                count += 1
    assert count > 4


def test_kafka_completes_a_transaction_that_we_left_open(
    kafka: KafkaTools, start_broker: StartBroker, tmp_path: Path
) -> None:
    directory = tmp_path / "kafka-logs"
    theirs = start_broker(directory)
    kafka.topics(theirs.bootstrap_servers, "--create", "--topic", "t")
    perf(JavaTools(kafka, theirs.bootstrap_servers), "t", "shared", 100)
    theirs.stop()
    store = cordwood.open(directory)
    before = store.transactions.find("shared")
    assert before is not None
    assert before.state is TransactionState.COMPLETE_COMMIT
    transaction = store.transaction("shared")
    transaction.__enter__()
    transaction.append("t", b"left open")
    store.topic("t").partition(0).sync()
    store.close()

    theirs.start()
    perf(JavaTools(kafka, theirs.bootstrap_servers), "t", "shared", 10)
    theirs.stop()

    with cordwood.open(directory) as again:
        after = again.transactions.find("shared")
        assert after is not None
        assert after.epoch > before.epoch + 1
        log = again.topic("t").partition(0)
        values = [record.value for record in log.read(isolation="read_committed")]
        assert len(values) == 110
        assert b"left open" not in values
