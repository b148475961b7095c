"""Kafka's tools for topics, their configurations, their records and the cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import cordwood
from cordwood.broker.config.broker_config import BROKER_KEYS
from cordwood.format.small_files.partition_metadata import encode_topic_id
from cordwood.log.rules.topic_config import CONFIG_KEYS
from cordwood.protocol.api_catalog import API_CATALOG
from interop.java_tools import JavaTools

# GetTelemetrySubscriptions and PushTelemetry: only if the broker shows metrics.
UNADVERTISED = {71, 72}

BASE_MS = 1_760_000_000_000
ENTRY = re.compile(r"  ([a-z.0-9]+)=(.*) sensitive=false synonyms=\{(.*)\}")


def entries(lines: list[str]) -> dict[str, str]:
    """The configuration that ``configs --describe`` printed."""
    return {found[1]: found[2] for line in lines if (found := ENTRY.fullmatch(line))}


def test_a_topic_is_created_described_enlarged_and_deleted(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    config = {"cleanup.policy": "compact,delete", "retention.ms": "3600000"}
    given = [word for key, value in config.items() for word in ("--config", f"{key}={value}")]

    created = tools.run("topics", "--create", "--topic", "orders", "--partitions", "2", *given)
    overrides = broker.store.registry.overrides("orders")
    topic_id = encode_topic_id(broker.store.topic("orders").topic_id)
    tools.run("topics", "--alter", "--topic", "orders", "--partitions", "3")
    described = tools.run("topics", "--describe", "--topic", "orders")
    by_id = tools.run("topics", "--describe", "--topic-id", topic_id)
    listed = tools.run("topics", "--list", "--exclude-internal")
    tools.run("topics", "--delete", "--topic", "orders")

    assert created.lines == ["Created topic orders."]
    assert overrides == config
    head, *partitions = [line.strip().split("\t") for line in described.lines]
    assert head[:4] == [
        "Topic: orders",
        f"TopicId: {topic_id}",
        "PartitionCount: 3",
        "ReplicationFactor: 1",
    ]
    assert "cleanup.policy=compact,delete,retention.ms=3600000" in head[4]
    assert [line[1:5] for line in partitions] == [
        [f"Partition: {number}", "Leader: 1", "Replicas: 1", "Isr: 1"] for number in range(3)
    ]
    assert by_id.lines[0] == described.lines[0]
    assert "orders" in listed.lines
    assert "orders" not in broker.store.topics()


def test_a_topic_that_is_there_is_left_as_it_is(broker: cordwood.Broker, tools: JavaTools) -> None:
    topic_id = broker.create_topic("taken", partitions=3).topic_id

    again = tools.run("topics", "--create", "--if-not-exists", "--topic", "taken")
    refused = tools.attempt("topics", "--create", "--topic", "taken")

    assert again.lines == []
    assert refused.exit_code == 1
    assert "TopicExistsException" in refused.printed
    taken = broker.store.topic("taken")
    assert (taken.topic_id, taken.partition_count) == (topic_id, 3)


def test_the_configuration_of_a_topic_is_shown_set_and_put_back(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    broker.create_topic("settings", config={"flush.ms": 5000})
    topic = ("--entity-type", "topics", "--entity-name", "settings")

    changes = "cleanup.policy=[compact,delete],max.message.bytes=2000"
    tools.run("configs", *topic, "--alter", "--add-config", changes, "--delete-config", "flush.ms")
    set_for_it = tools.run("configs", *topic, "--describe")
    everything = tools.run("configs", *topic, "--describe", "--all")

    changed = {"cleanup.policy": "compact,delete", "max.message.bytes": "2000"}
    assert broker.store.registry.overrides("settings") == changed
    assert broker.store.topic("settings").partition(0).config.max_message_bytes == 2000
    assert entries(set_for_it.lines) == changed
    shown = entries(everything.lines)
    assert shown | changed == shown
    assert set(shown) == {key.name for key in CONFIG_KEYS if not key.is_internal}


@pytest.mark.parametrize(("key", "value"), [("retention.ms", "soon"), ("no.such.key", "1")])
def test_what_cannot_be_set_is_refused_with_the_reason(
    broker: cordwood.Broker, tools: JavaTools, key: str, value: str
) -> None:
    topic = f"steady-{key}"
    broker.create_topic(topic)
    change = ("--alter", "--add-config", f"{key}={value}")

    refused = tools.attempt("configs", "--entity-type", "topics", "--entity-name", topic, *change)

    assert refused.exit_code == 1
    assert f"InvalidConfigurationException: {key} = {value}: " in refused.printed
    assert broker.store.registry.overrides(topic) == {}


def test_the_configuration_of_the_broker_is_shown_and_changed_while_it_runs(
    tools: JavaTools,
) -> None:
    me = ("--entity-type", "brokers", "--entity-name", "1")

    shown = tools.run("configs", *me, "--describe", "--all")
    tools.run("configs", *me, "--alter", "--add-config", "num.io.threads=2")
    dynamic = tools.run("configs", *me, "--describe")
    tools.run("configs", *me, "--alter", "--delete-config", "num.io.threads")
    after = tools.run("configs", *me, "--describe")
    refused = tools.attempt("configs", *me, "--alter", "--add-config", "log.dirs=/elsewhere")

    # A line about a secret has another form: sensitive=true, and no value.
    shown_keys = {key.name for key in BROKER_KEYS if not key.is_sensitive}
    assert shown_keys <= entries(shown.lines).keys()
    assert "DYNAMIC_BROKER_CONFIG:num.io.threads=2" in "".join(dynamic.lines)
    assert after.lines == ["Dynamic configs for broker 1 are:"]
    assert refused.exit_code == 1


def test_offsets_are_found_by_place_and_by_time(broker: cordwood.Broker, tools: JavaTools) -> None:
    topic = broker.create_topic("times", partitions=2)
    for second, value in enumerate([b"0", b"3", b"1", b"2"]):
        at_ms = BASE_MS + int(value) * 1000
        topic.append(value, partition=second % 2, timestamp_ms=at_ms)
    topic.append(b"last", partition=1, timestamp_ms=BASE_MS)

    def offsets(time: str) -> list[str]:
        return tools.run("get-offsets", "--topic", "times", "--time", time).lines

    assert offsets("earliest") == ["times:0:0", "times:1:0"]
    assert offsets("latest") == ["times:0:2", "times:1:3"]
    assert offsets("max-timestamp") == ["times:0:1", "times:1:0"]
    assert offsets(str(BASE_MS + 1001)) == ["times:1:0"]  # in partition 0 there is none so late
    assert offsets("latest-tiered") == []


def test_records_are_deleted_up_to_an_offset(
    broker: cordwood.Broker, tools: JavaTools, tmp_path: Path
) -> None:
    topic = broker.create_topic("shortened", partitions=2)
    for partition in range(2):
        topic.append_many([(None, b"%d" % n) for n in range(10)], partition=partition)
    wanted = [
        {"topic": "shortened", "partition": 0, "offset": 4},
        {"topic": "shortened", "partition": 1, "offset": -1},
    ]
    file = tmp_path / "offsets.json"
    file.write_text(json.dumps({"partitions": wanted, "version": 1}))

    deleted = tools.run("delete-records", "--offset-json-file", file)
    left = tools.run("console-consumer", "--topic", "shortened", "--from-beginning",
                     "--max-messages", "6")  # fmt: skip

    assert sorted(deleted.lines[-2:]) == [
        "partition: shortened-0\tlow_watermark: 4",
        "partition: shortened-1\tlow_watermark: 10",
    ]
    assert [log.start_offset for log in topic.partitions] == [4, 10]
    assert left.lines == ["4", "5", "6", "7", "8", "9"]


def test_the_size_of_partitions_is_that_of_their_files(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    topic = broker.create_topic("sized", partitions=2)
    topic.append_many([(None, b"x" * 1000)] * 10, partition=1)

    printed = tools.run("log-dirs", "--describe", "--topic-list", "sized", "--broker-list", "1")

    [directory] = json.loads(printed.lines[-1])["brokers"][0]["logDirs"]
    assert (directory["logDir"], directory["error"]) == (broker.data_dir, None)
    assert {p["partition"]: p["size"] for p in directory["partitions"]} == {
        "sized-0": 0,
        "sized-1": Path(broker.data_dir, "sized-1", "00000000000000000000.log").stat().st_size,
    }


def test_the_cluster_says_what_it_is_and_what_it_speaks(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    versions = tools.run("broker-api-versions")
    cluster_id = tools.run("cluster", "cluster-id")
    endpoints = tools.run("cluster", "list-endpoints")
    moves = tools.run("reassign-partitions", "--list")

    spoken = re.findall(r"(\w+)\((\d+)\): (\d+)(?: to (\d+))? \[usable: (\d+)\]", versions.output)
    assert {int(key): (name, int(low), int(high or low)) for name, key, low, high, _ in spoken} == {
        api.key: (api.name, api.advertised_min_version, api.max_version)
        for api in API_CATALOG.values()
        if api.key not in UNADVERTISED
    }
    # The tool is of the Kafka whose versions we speak: it could use the newest of each.
    assert [usable for *_, usable in spoken] == [high or low for _, _, low, high, _ in spoken]
    assert re.fullmatch(r"Cluster ID: [\w-]{22}", cluster_id.lines[0])
    assert endpoints.rows[1][:3] == ["1", broker.host, str(broker.port)]
    assert moves.lines == ["No partition reassignments found."]


def test_kafkas_own_check_of_what_a_broker_can_do_passes(
    broker: cordwood.Broker, tools: JavaTools
) -> None:
    broker.create_topic("compatibility")
    can = ("offsets-for-times", "cluster-id", "create-topics", "describe-configs",
           "idempotent-producer")  # fmt: skip

    printed = tools.run(
        "client-compatibility-test", "--topic", "compatibility", "--num-cluster-nodes", "1",
        *(word for feature in can for word in (f"--{feature}-supported", "True")),
        "--describe-acls-supported", "True", "--expect-record-too-large-exception", "False",
    )  # fmt: skip

    assert "SUCCESS." in printed.printed
