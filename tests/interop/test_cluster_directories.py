"""A broker of ours with two data directories, in a cluster with a broker of Kafka's."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from cordwood.broker.cluster.cluster_member import directory_ids
from cordwood.broker.server import BrokerServer
from cordwood.errors import CordwoodError
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.store.store import Store, StoreSetup
from cordwood.settings import settings_from
from fakes.gated_fs import GatedFileSystem
from interop.cluster_members import CordwoodMember, KafkaMember
from interop.cluster_records import await_in_sync, consume, produce
from interop.kafka_peer import KafkaTools, kept_ports
from interop.kraft_controllers import KraftControllers, format_directory
from interop.mixed_cluster import ALONE, OURS, THEIRS
from wire.waiting import await_true

PARTITIONS = 4


@pytest.fixture(scope="module")
def controllers(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KraftControllers]:
    with KraftControllers(kafka, tmp_path_factory.mktemp("directories")) as running:
        yield running


@pytest.fixture(scope="module")
def theirs(
    kafka: KafkaTools, controllers: KraftControllers, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaMember]:
    place = tmp_path_factory.mktemp("theirs")
    with KafkaMember(kafka, controllers, place, node_id=THEIRS, properties=ALONE) as running:
        yield running


def formatted(directory: Path, controllers: KraftControllers, node_id: int = OURS) -> Path:
    format_directory(directory, controllers.cluster_id, node_id)
    return directory


def create(address: str, name: str, *replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    topic = NewTopic(
        name, num_partitions=PARTITIONS, replica_assignment=[list(replicas)] * PARTITIONS
    )
    admin.create_topics([topic])[name].result(30)
    for number in range(PARTITIONS):
        await_in_sync(address, name, len(replicas), number)


def leaders(address: str, topic: str) -> list[int]:
    found = AdminClient({"bootstrap.servers": address}).list_topics(topic, timeout=10)
    return [found.topics[topic].partitions[number].leader for number in range(PARTITIONS)]


class TwoDiskMember:
    """A member in this process, one of whose disks can fail."""

    def __init__(self, controllers: KraftControllers, root: Path, node_id: int) -> None:
        self.fs = GatedFileSystem("/bad/")
        self.failures: list[CordwoodError] = []
        paths = [str(formatted(root / name, controllers, node_id)) for name in ("bad", "good")]
        [self.port] = kept_ports(1)
        settings = settings_from(
            {
                "process.roles": "broker",
                "node.id": node_id,
                "listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
                "controller.quorum.bootstrap.servers": controllers.bootstrap,
                "controller.listener.names": "CONTROLLER",
                "broker.heartbeat.interval.ms": 500,
                "broker.session.timeout.ms": 4000,
                "replica.lag.time.max.ms": 4000,
                "offsets.topic.num.partitions": 5,
                **ALONE,
            }
        )
        self.store = Store(paths, StoreSetup(fs=self.fs, free_bytes_min=0, role=AMONG_OTHERS))
        self.server = BrokerServer(
            self.store,
            settings.broker,
            security=settings.security,
            owns_store=True,
            cluster=settings.cluster,
            when_failed=self.failures.append,
        )
        self.server.start()
        member = self.server.member
        assert member is not None
        await_true(lambda: member.facts().fencing is None)

    def directories_of(self, topic: str) -> list[str]:
        return [
            Path(self.store.topic(topic).partition(number).directory).parent.name
            for number in range(PARTITIONS)
        ]

    def assigned(self, topic: str) -> list[UUID]:
        """The directories that the controllers know for our replicas."""
        assert self.server.member is not None
        found = self.server.member.control.image.topic(topic)
        assert found is not None
        return [
            found.partitions[number].directories[found.partitions[number].replicas.index(2)]
            for number in range(PARTITIONS)
        ]


def test_one_disk_that_fails_takes_only_its_replicas_offline(
    controllers: KraftControllers, theirs: KafkaMember, tmp_path: Path
) -> None:
    member = TwoDiskMember(controllers, tmp_path, node_id=2)
    try:
        create(theirs.address, "spread", 2, THEIRS)
        places = member.directories_of("spread")
        ids = {Path(path).name: found for path, found in directory_ids(member.store).items()}
        assert sorted(places) == ["bad", "bad", "good", "good"]
        await_true(lambda: member.assigned("spread") == [ids[place] for place in places])
        sent = produce(theirs.address, "spread", [b"before %d" % n for n in range(100)])

        member.fs.writes.error = OSError(5, "Input/output error")
        more = produce(theirs.address, "spread", [b"after %d" % n for n in range(100)])

        wanted = [THEIRS if place == "bad" else 2 for place in places]
        await_true(lambda: leaders(theirs.address, "spread") == wanted)
        assert (len(sent), len(more)) == (100, 100)
        assert not member.failures
        assert sorted(consume(theirs.address, "spread", 200)) == sorted(sent + more)
    finally:
        member.fs.writes.error = None
        member.server.stop()


def test_a_replaced_disk_is_filled_again_and_a_missing_one_is_offline(
    controllers: KraftControllers, theirs: KafkaMember, tmp_path: Path
) -> None:
    second = formatted(tmp_path / "second", controllers)
    with ExitStack() as running:
        ours = CordwoodMember(
            controllers,
            tmp_path / "ours",
            node_id=OURS,
            properties={**ALONE, "log.dirs": f"{tmp_path / 'ours' / 'data'},{second}"},
        )
        running.enter_context(ours)
        create(theirs.address, "refilled", THEIRS, OURS)
        sent = produce(theirs.address, "refilled", [b"value %d" % n for n in range(500)])
        lost = [number for number in range(PARTITIONS) if (second / f"refilled-{number}").exists()]
        assert len(lost) == 2
        ours.stop()

        (second / "meta.properties").unlink()
        (second / "meta.properties").mkdir()  # reading it fails, as on a broken disk
        ours.launch()
        kept = next(number for number in range(PARTITIONS) if number not in lost)
        await_in_sync(theirs.address, "refilled", 2, kept)
        assert f"{second} is offline" in ours.log.read_text()
        ours.stop()

        shutil.rmtree(second)
        formatted(second, controllers)
        ours.launch()
        for number in range(PARTITIONS):
            await_in_sync(theirs.address, "refilled", 2, number)

        assert len(sent) == 500
        for number in lost:
            found = ours.data / f"refilled-{number}", second / f"refilled-{number}"
            assert any(each.exists() for each in found)
        ours.stop()
