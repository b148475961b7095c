"""``cordwood cluster`` on a cluster of our brokers and Kafka's, judged by Kafka's own tools."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from interop.cluster_members import CordwoodMember, KafkaMember
from interop.cluster_records import await_in_sync, leader_of, produce
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.mixed_cluster import create_on, run_tool

FIRST, SECOND, THEIRS = 1, 2, 101
VALUES = [b"value %d" % number for number in range(500)]
Cluster = tuple[CordwoodMember, CordwoodMember, KafkaMember]


@pytest.fixture(scope="module")
def cluster(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers of ours and one of Kafka's. The second of ours may be killed by the last test."""
    place = tmp_path_factory.mktemp("operated")
    alone = {"offsets.topic.replication.factor": "1"}
    with ExitStack() as running:
        controllers = running.enter_context(KraftControllers(kafka, place / "controllers"))
        ours = [
            running.enter_context(
                CordwoodMember(controllers, place / str(node), node_id=node, properties=alone)
            )
            for node in (FIRST, SECOND)
        ]
        theirs = running.enter_context(
            KafkaMember(kafka, controllers, place / "theirs", node_id=THEIRS, properties=alone)
        )
        yield ours[0], ours[1], theirs


def cordwood(*arguments: str | Path, code: int = 0) -> str:
    """What ``cordwood cluster`` printed."""
    ended = subprocess.run(
        [sys.executable, "-m", "cordwood", "cluster", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == code, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


def status(address: str, *, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(cordwood("status", "--json", "--at", address, code=code))
    return found


def described_replicas(address: str, topic: str) -> list[tuple[Any, ...]]:
    """Leader, replicas, number of those in sync and offline ones, as ``topics describe`` shows."""
    ended = subprocess.run(
        [sys.executable, "-m", "cordwood", "topics", "describe", topic, "--json", "--at", address],
        capture_output=True,
        timeout=120,
        check=True,
    )
    return [
        (each["leader"], each["replicas"], len(each["in_sync"]), each["offline"])
        for each in json.loads(ended.stdout)["partitions"]
    ]


def described(tools: KafkaTools, address: str, *arguments: str) -> list[str]:
    """The partitions that kafka-topics lists, as ``orders-0``."""
    printed = run_tool(
        tools, "TopicCommand", "--bootstrap-server", address, "--describe", *arguments
    )
    return sorted(
        f"{topic}-{number}"
        for topic, number in re.findall(r"Topic: (\S+)\s+Partition: (\d+)", printed)
    )


def test_our_brokers_and_kafkas_show_the_same_cluster(kafka: KafkaTools, cluster: Cluster) -> None:
    first, _, theirs = cluster
    create_on(first.address, "shown", FIRST, SECOND, THEIRS)

    by_ours, by_theirs = status(first.address), status(theirs.address)
    quorum = run_tool(
        kafka, "MetadataQuorumCommand", "--bootstrap-server", first.address, "describe", "--status"
    )

    assert by_ours["is_healthy"]
    assert by_ours["brokers"][0]["address"] == first.address
    assert [(each["node_id"], each["kind"], each["state"]) for each in by_ours["brokers"]] == [
        (FIRST, "cordwood", "alive"),
        (SECOND, "cordwood", "alive"),
        (THEIRS, "kafka", "alive"),
    ]
    replicas = [described_replicas(at, "shown") for at in (first.address, theirs.address)]
    assert replicas[0] == replicas[1] == [(FIRST, [FIRST, SECOND, THEIRS], 3, [])]
    for key in ("is_healthy", "cluster_id", "leaders", "partitions", "under_replicated"):
        assert by_ours[key] == by_theirs[key], key
    assert re.search(rf"LeaderId:\s+{by_ours['quorum']['leader_id']}\b", quorum)
    assert re.search(rf"LeaderEpoch:\s+{by_ours['quorum']['leader_epoch']}\b", quorum)


def test_a_reassignment_of_ours_is_complete_for_kafkas_tool(
    kafka: KafkaTools, cluster: Cluster, tmp_path: Path
) -> None:
    first, _, theirs = cluster
    create_on(first.address, "moved", THEIRS)
    produce(first.address, "moved", VALUES)
    before, after = tmp_path / "before.json", tmp_path / "after.json"
    move = ("reassign", "--topic", "moved", "--to", str(SECOND), "--at", first.address)

    assert "nothing" not in cordwood(*move, "--dry-run")
    assert leader_of(first.address, "moved") == THEIRS
    cordwood(*move, "--wait", "--timeout", "60", "--save-current", before)

    after.write_text(
        json.dumps(
            {
                "version": 1,
                "partitions": [{"topic": "moved", "partition": 0, "replicas": [SECOND]}],
            }
        )
    )
    tool = "reassign.ReassignPartitionsCommand"
    verified = run_tool(
        kafka, tool, "--bootstrap-server", theirs.address,
        "--reassignment-json-file", str(after), "--verify",
    )  # fmt: skip
    assert "Reassignment of partition moved-0 is completed" in verified
    assert read(first.address, "moved") == VALUES
    cordwood("reassign", "--plan", before, "--wait", "--timeout", "60", "--at", theirs.address)
    assert leader_of(first.address, "moved") == THEIRS
    assert "nothing is under way" in cordwood("reassign", "--cancel", "--at", first.address)


def test_a_reassignment_is_made_although_nobody_reads_the_plan(cluster: Cluster) -> None:
    """As with ``cordwood cluster reassign ... | true``."""
    first, _, theirs = cluster
    create_on(first.address, "unread", THEIRS)
    words = ["reassign", "--topic", "unread", "--to", str(FIRST), "--at", theirs.address]

    with subprocess.Popen(
        [sys.executable, "-m", "cordwood", "cluster", *words, "--wait", "--timeout", "60"],
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        running.stdout.close()
        code = running.wait(120)

    assert code == 0
    assert leader_of(first.address, "unread") == FIRST


def test_preferred_leaders_are_elected_by_us_and_by_kafkas_tool(
    kafka: KafkaTools, cluster: Cluster, tmp_path: Path
) -> None:
    first, _, theirs = cluster
    create_on(first.address, "led", FIRST, SECOND, THEIRS)

    def prefer(*replicas: int) -> None:
        plan = tmp_path / "plan.json"
        wanted = {"topic": "led", "partition": 0, "replicas": list(replicas)}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        cordwood("reassign", "--plan", plan, "--wait", "--timeout", "60", "--at", theirs.address)

    prefer(THEIRS, FIRST, SECOND)
    assert leader_of(first.address, "led") == FIRST
    assert [each["name"] for each in status(first.address)["not_preferred"]] == ["led-0"]
    cordwood("elect", "--topic", "led", "--at", first.address)
    await_leader(first.address, "led", THEIRS)

    prefer(SECOND, FIRST, THEIRS)
    run_tool(
        kafka, "LeaderElectionCommand", "--bootstrap-server", first.address,
        "--election-type", "preferred", "--topic", "led", "--partition", "0",
    )  # fmt: skip
    await_leader(first.address, "led", SECOND)
    assert status(first.address)["not_preferred"] == []


def test_a_new_broker_is_checked_before_it_joins(cluster: Cluster, tmp_path: Path) -> None:
    _, _, theirs = cluster
    place = ("--dir", tmp_path / "new", "--at", theirs.address)

    refused = cordwood("join", "--node-id", str(SECOND), *place, code=2)
    shown = json.loads(cordwood("join", "--node-id", "7", *place, "--json"))

    assert "is the id of a broker that is alive" in refused
    assert shown["settings"]["controller.quorum.bootstrap.servers"]
    assert shown["cluster_id"] in (tmp_path / "new" / "meta.properties").read_text()


def test_a_dead_broker_is_seen_drained_and_removed(kafka: KafkaTools, cluster: Cluster) -> None:
    first, second, theirs = cluster
    create_on(first.address, "kept", FIRST, SECOND)
    produce(first.address, "kept", VALUES)

    second.kill()
    await_in_sync(first.address, "kept", 1)
    sick = status(first.address, code=1)
    behind = described(kafka, first.address, "--under-replicated-partitions")

    assert f"broker {SECOND} is not alive" in sick["summary"]
    assert sorted(each["name"] for each in sick["under_replicated"]) == behind
    assert "kept-0" in behind
    stuck = cordwood(
        "drain", str(SECOND), "--wait", "--timeout", "60", "--at", first.address, code=1
    )
    assert "shown-0 cannot leave broker 2" in stuck  # three replicas on two brokers
    await_in_sync(first.address, "kept", 2)
    assert read(first.address, "kept") == VALUES
    assert "has" in cordwood("remove", str(SECOND), "--yes", "--at", first.address, code=1)
    for topic in ("shown", "led"):
        run_tool(
            kafka,
            "TopicCommand",
            "--bootstrap-server",
            theirs.address,
            "--delete",
            "--topic",
            topic,
        )
    await_topics_gone(first.address, "shown", "led")
    cordwood("drain", str(SECOND), "--wait", "--timeout", "60", "--at", first.address)
    cordwood("remove", str(SECOND), "--yes", "--at", first.address)
    assert [each["node_id"] for each in status(first.address)["brokers"]] == [FIRST, THEIRS]


def test_the_status_says_that_the_controllers_are_away(kafka: KafkaTools, tmp_path: Path) -> None:
    with (
        KraftControllers(kafka, tmp_path / "controllers") as controllers,
        CordwoodMember(controllers, tmp_path / "1", node_id=FIRST) as member,
    ):
        create_on(member.address, "orders", FIRST)
        controllers.kill(controllers.leader())

        began_s = time.monotonic()
        sick = status(member.address, code=1)

        assert time.monotonic() - began_s < 20
        assert "the controllers do not answer" in sick["summary"]
        assert sick["quorum"] is None
        assert sick["partitions"] == 1
        assert sick["brokers"][0]["kind"] == "cordwood"


def read(address: str, topic: str) -> list[bytes]:
    """All values, without a group: the offsets topic would be on one broker."""
    ended = subprocess.run(
        [sys.executable, "-m", "cordwood", "consume", topic, "--at", address],
        capture_output=True,
        check=True,
    )
    return ended.stdout.splitlines()


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def await_leader(address: str, topic: str, node_id: int) -> None:
    wait_for(lambda: leader_of(address, topic) == node_id, f"{node_id} leads {topic}")


def await_topics_gone(address: str, *topics: str) -> None:
    def are_gone() -> bool:
        ended = subprocess.run(
            [sys.executable, "-m", "cordwood", "topics", "list", "--at", address],
            capture_output=True,
            text=True,
            check=True,
        )
        return not any(topic in ended.stdout.split() for topic in topics)

    wait_for(are_gone, f"{topics} are gone")
