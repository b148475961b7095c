"""Replicas move between the data directories of one broker; Kafka's tools ask for it and judge."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.broker.cluster.cluster_member import directory_ids
from interop.cluster_members import CordwoodMember, KafkaMember
from interop.cluster_records import await_in_sync, consume, leader_of, produce
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.mixed_cluster import ALONE, OURS, THEIRS, configure, create_on, reassign, run_tool
from interop.test_cluster_directories import TwoDiskMember, formatted, leaders
from interop.test_cluster_directories import create as create_spread
from wire.waiting import await_true

IN_PROCESS = 2
VALUES = [b"%05d" % number * 100 for number in range(3_000)]  # 1.5 MB
Disks = tuple[CordwoodMember, Path, Path]


@pytest.fixture(scope="module")
def controllers(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KraftControllers]:
    with KraftControllers(kafka, tmp_path_factory.mktemp("disks")) as running:
        yield running


@pytest.fixture(scope="module")
def theirs(
    kafka: KafkaTools, controllers: KraftControllers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaMember]:
    place = tmp_path_factory.mktemp("theirs")
    with KafkaMember(kafka, controllers, place, node_id=THEIRS, properties=ALONE) as running:
        yield running


@pytest.fixture(scope="module")
def ours(
    controllers: KraftControllers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Disks]:
    """A broker with two data directories."""
    place = tmp_path_factory.mktemp("ours")
    second = formatted(place / "second", controllers)
    first = place / "broker" / "data"
    member = CordwoodMember(
        controllers,
        place / "broker",
        node_id=OURS,
        properties={**ALONE, "log.dirs": f"{first},{second}"},
    )
    with member:
        yield member, first, second


def plan_of(directory: Path, wanted: dict[tuple[str, int], tuple[list[int], list[str]]]) -> Path:
    plan = directory / "plan.json"
    partitions = [
        {"topic": topic, "partition": number, "replicas": replicas, "log_dirs": log_dirs}
        for (topic, number), (replicas, log_dirs) in wanted.items()
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": partitions}))
    return plan


def described(tools: KafkaTools, address: str, node: int, topic: str) -> list[tuple[str, bool]]:
    """Where `kafka-log-dirs.sh` finds partition 0 of a topic, and whether it is a future one."""
    printed = run_tool(
        tools, "LogDirsCommand", "--bootstrap-server", address, "--describe",
        "--broker-list", str(node), "--topic-list", topic,
    )  # fmt: skip
    answer: dict[str, Any] = json.loads(printed[printed.index("{") :])
    return sorted(
        (directory["logDir"], found["isFuture"])
        for broker in answer["brokers"]
        for directory in broker["logDirs"]
        for found in directory["partitions"]
        if found["partition"] == f"{topic}-0"
    )


def has(directory: Path, topic: str) -> bool:
    return (directory / f"{topic}-0").is_dir()


@pytest.mark.parametrize("replicas", [[OURS, THEIRS], [THEIRS, OURS], [OURS]])
def test_a_replica_moves_while_producers_write_to_it(
    kafka: KafkaTools, theirs: KafkaMember, ours: Disks, tmp_path: Path, replicas: list[int]
) -> None:
    _, first, second = ours
    topic = f"moving-{'-'.join(map(str, replicas))}"
    create_on(theirs.address, topic, *replicas, segment_bytes="1048576")
    acknowledged = produce(theirs.address, topic, VALUES)
    target = second if has(first, topic) else first
    log_dirs = [str(target) if node == OURS else "any" for node in replicas]
    plan = plan_of(tmp_path, {(topic, 0): (replicas, log_dirs)})
    is_over = threading.Event()

    def write() -> None:
        number = 0
        while not is_over.is_set():
            values = [b"more %06d" % (number + each) for each in range(200)]
            acknowledged.extend(
                produce(theirs.address, topic, values, **{"enable.idempotence": True})
            )
            number += 200

    writer = threading.Thread(target=write)
    writer.start()
    try:
        printed = reassign(kafka, theirs.address, plan, "--execute")
        await_true(
            lambda: has(target, topic) and not has(first if target == second else second, topic)
        )
    finally:
        is_over.set()
        writer.join()

    assert "Successfully started" in printed
    verified = reassign(kafka, theirs.address, plan, "--verify")
    assert "is completed" in verified
    assert described(kafka, theirs.address, OURS, topic) == [(str(target), False)]
    await_in_sync(theirs.address, topic, len(replicas))
    assert leader_of(theirs.address, topic) == replicas[0]
    assert consume(theirs.address, topic, len(acknowledged), group=topic) == acknowledged
    names = [path.name for disk in (first, second) for path in disk.iterdir()]
    assert not [name for name in names if name.startswith(topic) and "-future" in name]


def test_a_move_is_shown_held_to_a_limit_ended_and_lost_in_a_crash_without_harm(
    kafka: KafkaTools, theirs: KafkaMember, ours: Disks, tmp_path: Path
) -> None:
    member, first, second = ours
    create_on(theirs.address, "slow", OURS, segment_bytes="1048576")
    produce(theirs.address, "slow", VALUES, **{"batch.size": "20000"})
    source = first if has(first, "slow") else second
    target = second if source == first else first
    plan = plan_of(tmp_path, {("slow", 0): ([OURS], [str(target)])})
    limit = ("--replica-alter-log-dirs-throttle", "1000")

    reassign(kafka, theirs.address, plan, "--execute", *limit)
    both = sorted([(str(source), False), (str(target), True)])
    await_true(lambda: described(kafka, theirs.address, OURS, "slow") == both)
    assert "still in progress" in reassign(
        kafka, theirs.address, plan, "--verify", "--preserve-throttles"
    )
    stay = plan_of(tmp_path, {("slow", 0): ([OURS], [str(source)])})
    reassign(kafka, theirs.address, stay, "--execute", "--additional", *limit)
    await_true(lambda: described(kafka, theirs.address, OURS, "slow") == [(str(source), False)])
    plan = plan_of(tmp_path, {("slow", 0): ([OURS], [str(target)])})
    reassign(kafka, theirs.address, plan, "--execute", "--additional", *limit)
    await_true(lambda: described(kafka, theirs.address, OURS, "slow") == both)
    member.kill()
    member.launch()
    member.wait_until("is running")
    await_true(lambda: leader_of(theirs.address, "slow") == OURS)
    assert described(kafka, theirs.address, OURS, "slow") == [(str(source), False)]
    key = "replica.alter.log.dirs.io.max.bytes.per.second"
    configure(
        kafka, theirs.address, "brokers", str(OURS), "--alter", "--add-config", f"{key}=100000000"
    )
    reassign(kafka, theirs.address, plan, "--execute", "--additional")
    await_true(lambda: described(kafka, theirs.address, OURS, "slow") == [(str(target), False)])

    assert consume(theirs.address, "slow", len(VALUES), group="slow") == VALUES


def test_the_controllers_know_where_a_replica_is_so_a_disk_without_replicas_may_fail(
    kafka: KafkaTools, controllers: KraftControllers, theirs: KafkaMember, tmp_path: Path
) -> None:
    member = TwoDiskMember(controllers, tmp_path, node_id=IN_PROCESS)
    try:
        create_spread(theirs.address, "gathered", IN_PROCESS, THEIRS)
        sent = produce(theirs.address, "gathered", VALUES)
        count = len(member.directories_of("gathered"))
        good = {Path(path).name: path for path in directory_ids(member.store)}["good"]
        place = ([IN_PROCESS, THEIRS], [good, "any"])
        plan = plan_of(tmp_path, {("gathered", number): place for number in range(count)})

        reassign(kafka, theirs.address, plan, "--execute")
        await_true(lambda: member.directories_of("gathered") == ["good"] * count)
        known = directory_ids(member.store)[good]
        await_true(lambda: member.assigned("gathered") == [known] * count)
        member.fs.writes.error = OSError(5, "Input/output error")
        more = produce(theirs.address, "gathered", [b"after %d" % n for n in range(100)])

        assert leaders(theirs.address, "gathered") == [IN_PROCESS] * count
        assert (len(sent), len(more)) == (len(VALUES), 100)
        found = consume(theirs.address, "gathered", len(sent) + 100, group="gathered")
        assert sorted(found) == sorted(sent + more)
    finally:
        member.fs.writes.error = None
        member.server.stop()
