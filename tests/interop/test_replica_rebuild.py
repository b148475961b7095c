"""A damaged replica is fetched again, from a leader of ours and from Kafka's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from interop.cluster_members import CordwoodMember, KafkaMember, batches
from interop.cluster_records import await_in_sync, await_same_batches, leader_of, produce
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers
from interop.mixed_cluster import create_on
from interop.test_cluster_commands import cordwood, read
from wire.waiting import await_true

FIRST, SECOND, THEIRS = 1, 2, 101
VALUES = [b"value %d" % number for number in range(2_000)]
Cluster = tuple[CordwoodMember, CordwoodMember, KafkaMember]


@pytest.fixture(scope="module")
def cluster(kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    place = tmp_path_factory.mktemp("rebuilt")
    alone = {"offsets.topic.replication.factor": "1"}
    with ExitStack() as running:
        controllers = running.enter_context(KraftControllers(kafka, place / "controllers"))
        first, second = (
            running.enter_context(
                CordwoodMember(controllers, place / str(node), node_id=node, properties=alone)
            )
            for node in (FIRST, SECOND)
        )
        theirs = running.enter_context(
            KafkaMember(kafka, controllers, place / "theirs", node_id=THEIRS, properties=alone)
        )
        yield first, second, theirs


def spoil(file: Path) -> None:
    """Change a byte in the middle."""
    with open(file, "r+b") as log:
        log.seek(file.stat().st_size // 2)
        byte = log.read(1)
        log.seek(-1, 1)
        log.write(bytes((byte[0] ^ 0xFF,)))


def first_file(member: CordwoodMember, topic: str) -> Path:
    return sorted((member.data / f"{topic}-0").glob("*.log"))[0]


@pytest.mark.parametrize("leader", [FIRST, THEIRS])
def test_a_running_replica_is_replaced_on_request(cluster: Cluster, leader: int) -> None:
    first, second, theirs = cluster
    topic = f"asked-{leader}"
    create_on(first.address, topic, leader, SECOND)
    produce(first.address, topic, VALUES)
    source = first if leader == FIRST else theirs
    await_same_batches([source, second], topic)
    spoil(first_file(second, topic))
    assert batches(second.data, topic) != batches(source.data, topic)

    cordwood(
        "rebuild", f"{topic}-0", "--broker", str(SECOND), "--wait", "--timeout", "60", "--yes",
        "--at", first.address,
    )  # fmt: skip

    await_same_batches([source, second], topic)
    assert leader_of(first.address, topic) == leader
    names = [path.name for path in second.data.iterdir()]
    assert not [name for name in names if name.endswith(("-future", "-stray"))]
    produce(first.address, topic, [b"more"])
    await_in_sync(first.address, topic, 2)
    assert read(first.address, topic) == [*VALUES, b"more"]


def test_what_cannot_be_rebuilt_is_refused_with_the_reason(cluster: Cluster) -> None:
    first, _, _ = cluster
    create_on(first.address, "refused", FIRST, THEIRS)
    ask = ("rebuild", "refused-0", "--yes", "--at", first.address, "--broker")

    assert "leads the partition" in cordwood(*ask, str(FIRST), code=1)
    assert "the broker is Kafka's" in cordwood(*ask, str(THEIRS), code=1)
    assert "has no replica of refused-0" in cordwood(*ask, str(SECOND), code=2)


def test_a_replica_that_is_damaged_at_the_start_is_replaced_by_itself(cluster: Cluster) -> None:
    first, second, _ = cluster
    create_on(first.address, "started", FIRST, SECOND)
    produce(first.address, "started", VALUES)
    await_same_batches([first, second], "started")
    second.kill()
    spoil(first_file(second, "started"))

    second.launch()
    second.wait_until("was fetched again")

    await_in_sync(first.address, "started", 2)
    await_same_batches([first, second], "started")
    assert not (second.data / "started-0" / "cordwood-damaged").exists()
    await_true(lambda: not any(path.name.endswith("-stray") for path in second.data.iterdir()))
