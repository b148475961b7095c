"""The same commands at a real Kafka broker and at ours: their tools must not see a difference.

What they print is compared whole, but for what differs between any two clusters: addresses, ids,
times. Of an error it is the kind that must be the same; what ours say is in our own words.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Final

import pytest
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as KafkaTopicPartition
from kafka.admin import KafkaAdminClient, NewTopic
from kafka.structs import OffsetAndMetadata

import cordwood
from cordwood.protocol.api_catalog import ApiKey
from interop.java_tools import JavaTools, ToolRun
from interop.kafka_peer import QUICK_START, KafkaBroker, KafkaTools
from wire.quota_requests import alter_quotas
from wire.raw_client import RawClient

BASE_MS = 1_760_000_000_000
KEPT_LONG = {"retention.ms": "-1"}  # the records below are old

# Commands that change nothing, over what `prepare` made.
READING: Final = (
    "topics --describe --topic orders",
    "topics --describe --topic missing",
    "configs --describe --entity-type topics --entity-name orders",
    "configs --describe --entity-type topics --entity-name missing",
    "configs --describe --entity-type groups --entity-name billing",
    "get-offsets --topic orders --time latest",
    "get-offsets --topic orders --time max-timestamp",
    f"get-offsets --topic orders --time {BASE_MS + 1500}",
    "get-offsets --topic missing",
    "consumer-groups --list --type",
    "consumer-groups --list --state",
    "consumer-groups --describe --all-groups",
    "consumer-groups --describe --all-groups --state",
    "consumer-groups --describe --group shipping --members --verbose",
    "consumer-groups --describe --group billing --offsets --verbose",
    "consumer-groups --describe --group missing",
    "console-consumer --topic orders --partition 1 --offset 1 --max-messages 1",
)

# Commands that build on each other.
STORIES: Final = {
    "the life of a topic": (
        "topics --create --topic life --partitions 2 --config segment.ms=60000",
        "topics --create --topic life",
        "topics --create --topic li.fe --partitions 1",
        "topics --create --topic li_fe --partitions 1",
        "topics --create --topic many --replication-factor 3",
        "topics --alter --topic life --partitions 1",
        "topics --alter --topic life --partitions 3",
        "topics --describe --topic life",
        "topics --delete --topic life",
    ),
    "the configuration of a topic": (
        "topics --create --topic set --partitions 1 --config cleanup.policy=compact",
        "configs --alter --entity-type topics --entity-name set"
        " --add-config max.message.bytes=2000,cleanup.policy=[compact,delete]",
        "configs --alter --entity-type topics --entity-name set --add-config no.such=1",
        "configs --alter --entity-type topics --entity-name set --add-config flush.messages=x",
        "configs --alter --entity-type topics --entity-name missing --add-config flush.messages=1",
        "configs --alter --entity-type topics --entity-name set --delete-config cleanup.policy",
        "configs --describe --entity-type topics --entity-name set",
    ),
    "the offsets of a group": (
        "consumer-groups --reset-offsets --group new --topic orders --to-offset 2 --execute",
        "consumer-groups --reset-offsets --group new --topic orders --shift-by 99 --execute",
        "consumer-groups --reset-offsets --group new --topic orders:7 --to-earliest --execute",
        "consumer-groups --delete-offsets --group new --topic orders:0",
        "consumer-groups --delete-offsets --group missing --topic orders",
        "consumer-groups --describe --group new",
        "consumer-groups --delete --group new",
        "consumer-groups --delete --group new",
    ),
    "quotas": (
        "configs --alter --entity-type users --entity-name alice"
        " --add-config producer_byte_rate=1000,request_percentage=12.5",
        "configs --alter --entity-type clients --entity-default"
        " --add-config consumer_byte_rate=2000",
        "configs --alter --entity-type users --entity-name alice --entity-type clients"
        " --entity-name app --add-config controller_mutation_rate=3",
        "configs --alter --entity-type ips --entity-name 10.0.0.1"
        " --add-config connection_creation_rate=4",
        "configs --describe --entity-type users --entity-name alice",
        "configs --describe --entity-type users --entity-name alice --entity-type clients"
        " --entity-name app",
        "configs --describe --entity-type clients --entity-default",
        "configs --describe --entity-type ips --entity-name 10.0.0.1",
        "configs --alter --entity-type users --entity-name alice --add-config no_such_rate=1",
        "configs --alter --entity-type users --entity-name alice"
        " --add-config producer_byte_rate=-1",
        "configs --alter --entity-type users --entity-name alice"
        " --add-config connection_creation_rate=1",
        "configs --alter --entity-type users --entity-name alice"
        " --delete-config producer_byte_rate",
        "configs --describe --entity-type users --entity-name alice",
        "configs --alter --entity-type ips --entity-name 10.0.0.1"
        " --delete-config connection_creation_rate",
        "configs --describe --entity-type ips --entity-name 10.0.0.1",
    ),
}  # fmt: skip

# Entities and their changes, of which Kafka refuses most: both must say so with the same code.
ALTERATIONS: Final[tuple[tuple[dict[str, str | None], dict[str, float]], ...]] = (
    ({"user": "bob"}, {"producer_byte_rate": 5.0}),
    ({"user": None}, {"request_percentage": 0.5}),
    ({"user": "bob", "client-id": None}, {"controller_mutation_rate": 1.5}),
    ({"ip": "10.0.0.2"}, {"connection_creation_rate": 7.0}),
    ({"ip": "10.0.0.2", "user": "bob"}, {"connection_creation_rate": 7.0}),
    ({}, {"producer_byte_rate": 5.0}),
    ({"user": ""}, {"producer_byte_rate": 5.0}),
    ({"group": "g"}, {"producer_byte_rate": 5.0}),
    ({"user": "bob"}, {"producer_byte_rate": 0.0}),
    ({"user": "bob"}, {"producer_byte_rate": 1.5}),
    ({"user": "bob"}, {"producer_byte_rate": 1e20}),
    ({"user": "bob"}, {"speed": 5.0}),
    ({"ip": "10.0.0.2"}, {"connection_creation_rate": 3e9}),
    ({"ip": "10.0.0.2"}, {"producer_byte_rate": 3.0}),
)

FILTERS: Final[tuple[tuple[list[tuple[str, int, str | None]], bool], ...]] = (
    ([], False),
    ([], True),
    ([("user", 2, None)], False),
    ([("user", 2, None)], True),
    ([("user", 1, None)], True),
    ([("user", 0, "bob")], False),
    ([("user", 0, "bob"), ("client-id", 1, None)], True),
    ([("ip", 2, None)], True),
    ([("ip", 2, None), ("user", 2, None)], False),
    ([("user", 2, None), ("user", 2, None)], False),
    ([("user", 0, None)], False),
    ([("user", 1, "bob")], False),
    ([("user", 3, None)], False),
    ([("group", 2, None)], False),
    ([("", 2, None)], False),
)


class Pair:
    """Kafka's tools at both brokers."""

    def __init__(self, theirs: JavaTools, ours: JavaTools) -> None:
        self.theirs = theirs
        self.ours = ours

    def run(self, command: str) -> tuple[ToolRun, ToolRun]:
        """What a command did at Kafka and at ours."""
        tool, *arguments = shlex.split(command)
        with ThreadPoolExecutor(2) as threads:
            runs = [
                threads.submit(tools.attempt, tool, *arguments)
                for tools in (self.theirs, self.ours)
            ]
            theirs, ours = (run.result() for run in runs)
        return theirs, ours


def comparable(run: ToolRun, tools: JavaTools) -> list[str]:
    """What was printed and how it ended, without what differs between any two clusters."""
    text = run.printed.replace(tools.servers, "SERVER")
    text = re.sub(r"TopicId: \S+", "TopicId: ID", text)
    # A Kafka that could have eligible leader replicas sets this one for all topics.
    text = re.sub(r"min\.insync\.replicas=1,?", "", text)
    text = re.sub(r"^\S+Z main ERROR ", "", text, flags=re.MULTILINE)
    text = re.sub(r"(org\.apache\.kafka\.[\w.]+Exception): .*", r"\1", text)
    text = re.sub(r"(Error while executing topic command :) .*", r"\1", text)
    # Java's maps have no order.
    text = re.sub(
        r"(Quota configs for .* are )(.*)",
        lambda found: found[1] + ", ".join(sorted(found[2].split(", "))),
        text,
    )
    # What a key is set to if nobody sets it, for those that Kafka has in hours too.
    text = re.sub(r", DEFAULT_CONFIG:log\.(retention|roll)\.ms=\d+", "", text)
    lines = [" ".join(line.split()) for line in text.splitlines() if "\tat " not in line]
    return [*filter(None, lines), f"exit code {run.exit_code}"]


def prepare(servers: str, tools: JavaTools) -> None:
    """A topic with records at known times, and a group of either kind that has read some."""
    admin = KafkaAdminClient(bootstrap_servers=servers)
    producer = KafkaProducer(bootstrap_servers=servers)
    consumer = KafkaConsumer(
        bootstrap_servers=servers, group_id="billing", enable_auto_commit=False
    )
    try:
        made = NewTopic("orders", num_partitions=3, replication_factor=1, topic_configs=KEPT_LONG)
        admin.create_topics([made])
        for n in range(7):
            producer.send(
                "orders", b"%d" % n, partition=n % 2, timestamp_ms=BASE_MS + n * 1000
            ).get(timeout=60)
        consumer.commit({KafkaTopicPartition("orders", 0): OffsetAndMetadata(3, "note", -1)})
    finally:
        consumer.close()
        producer.close()
        admin.close()
    tools.run(
        "console-consumer", "--topic", "orders", "--from-beginning", "--max-messages", "7",
        "--group", "shipping", "--command-property", "group.protocol=consumer",
    )  # fmt: skip


@pytest.fixture(scope="module")
def pair(
    kafka: KafkaTools, quick_jvm: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    root = tmp_path_factory.mktemp("peer")
    peer = KafkaBroker(
        kafka, log_dirs=[root / "logs"], work_dir=root / "broker", jvm_options=QUICK_START
    )
    with peer, cordwood.Broker(root / "ours") as broker:
        theirs = JavaTools(kafka, peer.bootstrap_servers, jvm_options=quick_jvm)
        ours = JavaTools(kafka, broker.bootstrap_servers, jvm_options=quick_jvm)
        for tools in (theirs, ours):
            prepare(tools.servers, tools)
        yield Pair(theirs, ours)


@pytest.mark.parametrize("command", READING)
def test_what_is_asked_is_answered_alike(pair: Pair, command: str) -> None:
    theirs, ours = pair.run(command)

    assert comparable(ours, pair.ours) == comparable(theirs, pair.theirs)


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_what_is_changed_is_changed_alike(pair: Pair, story: tuple[str, ...]) -> None:
    for command in story:
        theirs, ours = pair.run(command)

        assert comparable(ours, pair.ours) == comparable(theirs, pair.theirs), command


def altered(servers: str, version: int) -> list[int]:
    """The error code of each of `ALTERATIONS`."""
    return [
        alter_quotas(servers, entity, limits, version=version).error_code
        for entity, limits in ALTERATIONS
    ]


def described(servers: str, version: int) -> list[tuple[int, object]]:
    """The error code of each of `FILTERS`, and what it selects of bob, 10.0.0.2 and the default."""
    answers: list[tuple[int, object]] = []
    with RawClient(servers) as client:
        for components, is_strict in FILTERS:
            answer = client.call(
                ApiKey.DESCRIBE_CLIENT_QUOTAS,
                version,
                {
                    "components": [
                        {"entity_type": kind, "match_type": match, "match": name}
                        for kind, match, name in components
                    ],
                    "strict": is_strict,
                },
            )
            entries = None
            if answer.entries is not None:
                entries = sorted(
                    (
                        sorted((part.entity_type, part.entity_name or "") for part in entry.entity),
                        sorted((value.key, value.value) for value in entry.values),
                    )
                    for entry in answer.entries
                    if {part.entity_name for part in entry.entity} & {None, "bob", "10.0.0.2"}
                )
            answers.append((answer.error_code, entries))
    return answers


@pytest.mark.parametrize("version", [0, 1])
def test_quotas_are_refused_and_described_alike(pair: Pair, version: int) -> None:
    theirs, ours = pair.theirs.servers, pair.ours.servers

    assert altered(ours, version) == altered(theirs, version)
    assert described(ours, version) == described(theirs, version)


def test_every_key_of_a_kafka_topic_is_there_with_the_same_default_but_one(pair: Pair) -> None:
    command = "configs --describe --all --entity-type topics --entity-name orders"

    theirs, ours = pair.run(command)

    def values(run: ToolRun) -> dict[str, str]:
        return dict(re.findall(r"^  ([a-z.0-9]+)=(.*) sensitive=", run.output, re.MULTILINE))

    different = {
        key: (value, values(ours).get(key))
        for key, value in values(theirs).items()
        if values(ours).get(key) != value
    }
    assert different == {"preallocate": ("false", "auto")}
    assert len(values(theirs)) > 30
