"""Kafka's tools that send and read a lot, and check what they read."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cordwood
from interop.java_tools import QUICK_TOOL, JavaTools
from interop.kafka_peer import KafkaTools


def events(lines: list[str]) -> list[dict[str, object]]:
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_the_performance_tools_send_and_read_every_record(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    """The producer is idempotent and waits for all acknowledgements: both are its defaults."""
    broker.create_topic("load", partitions=3)

    sent = tools.run(
        "producer-perf-test", "--topic", "load", "--num-records", "30000",
        "--record-size", "200", "--throughput", "-1", "--command-property", "linger.ms=5",
    )  # fmt: skip
    read = tools.run(
        "consumer-perf-test", "--topic", "load", "--num-records", "30000", "--timeout", "60000"
    )

    assert sent.output.startswith("30000 records sent, ")
    logs = broker.store.topic("load").partitions
    assert sum(log.high_watermark for log in logs) == 30_000
    assert all(len(record.value or b"") == 200 for log in logs for record in log.read())
    assert read.lines[1].split(", ")[4] == "30000"


def test_the_verifiable_clients_see_each_record_once_and_in_order(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    broker.create_topic("verified")

    produced = tools.run(
        "verifiable-producer", "--topic", "verified", "--max-messages", "500",
        "--throughput", "-1", "--acks", "-1",
    )  # fmt: skip
    with tools.start(
        "verifiable-consumer", "--topic", "verified", "--group-id", "verifier",
        "--reset-policy", "earliest", "--max-messages", "500", "--group-protocol", "consumer",
    ) as consumer:  # fmt: skip
        committed = consumer.wait_for(
            "offsets_committed", lambda event: event["offsets"][0]["offset"] == 500
        )
        consumer.wait_for("shutdown_complete")

    acknowledged = [e for e in events(produced.lines) if e["name"] == "producer_send_success"]
    assert [(e["value"], e["offset"]) for e in acknowledged] == [(str(n), n) for n in range(500)]
    values = [record.value for record in broker.store.topic("verified").partition(0).read()]
    assert values == [b"%d" % n for n in range(500)]
    assert committed["success"] is True
    assert broker.store.group("verifier").committed("verified", 0) == 500


def test_each_record_comes_back_before_the_next_is_sent(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    printed = tools.run(
        "e2e-latency", "--topic", "latency", "--num-records", "200", "--record-size", "100",
        "--producer-acks", "all",
    )  # fmt: skip

    assert "Avg latency: " in printed.output
    assert broker.store.topic("latency").partition(0).high_watermark == 200


@pytest.mark.slow
def test_what_compaction_leaves_is_the_last_value_of_every_key(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    """Kafka's tester reads what it wrote after a while; its consumer takes 20 s to see an end."""
    often = {
        "log.segment.bytes": 1_048_576,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.cleaner.backoff.ms": 0,
    }
    with cordwood.Broker(config=often) as broker:
        tools = JavaTools(
            kafka,
            broker.bootstrap_servers,
            jvm_options=(*QUICK_TOOL, f"-Djava.io.tmpdir={tmp_path}"),
        )

        printed = tools.run(
            "log-compaction-tester", "--messages", "200000", "--topics", "1", "--sleep", "3",
            "--percent-deletes", "20",
        )  # fmt: skip

        [topic] = broker.store.topics()
        log = broker.store.topic(topic).partition(0)
        kept = sum(1 for _ in log.read())
        assert kept < 200_000 == log.high_watermark
    assert re.search(r"Validated [1-9]\d* values, 0 mismatches\.", printed.printed)
