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
from interop.java_tools import JavaTools, ToolRun
from interop.kafka_peer import QUICK_START, KafkaBroker, KafkaTools

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
}  # fmt: skip


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


def test_every_key_of_a_kafka_topic_is_there_with_the_same_default(pair: Pair) -> None:
    command = "configs --describe --all --entity-type topics --entity-name orders"

    theirs, ours = pair.run(command)

    def values(run: ToolRun) -> dict[str, str]:
        return dict(re.findall(r"^  ([a-z.0-9]+)=(.*) sensitive=", run.output, re.MULTILINE))

    assert values(ours) | values(theirs) == values(ours)
    assert len(values(theirs)) > 30
