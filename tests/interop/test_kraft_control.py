"""Our control channel and Kafka's own controller: one controller, and one broker of Kafka."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest

from cordwood.cluster.cluster_control import InSyncReplica, IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.control.broker_lifecycle import Phase
from cordwood.cluster.control.membership import SUPPORTED_FEATURES
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.errors import ClusterMismatchError, RegistrationRefusedError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from interop.control_member import ControlMember
from interop.java_tools import MAIN_CLASSES
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers, random_id
from interop.kraft_requests import ask, create_topic

SMALL_SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "3000"}


@pytest.fixture(scope="module")
def controllers(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KraftControllers]:
    with KraftControllers(
        kafka, tmp_path_factory.mktemp("kraft"), properties=SMALL_SNAPSHOTS
    ) as running:
        running.start_broker(100)
        yield running


@pytest.fixture
def tool(kafka: KafkaTools, controllers: KraftControllers) -> Callable[..., str]:
    """Runs one of Kafka's tools against its own broker."""

    def run(name: str, *arguments: str) -> str:
        broker = ("--bootstrap-server", controllers.brokers[0].address)
        return kafka.run(MAIN_CLASSES[name], *arguments, *broker)

    return run


def joined(controllers: KraftControllers, node_id: int, **options: Any) -> ControlMember:
    return ControlMember(controllers.bootstrap, controllers.cluster_id, node_id=node_id, **options)


def is_running(node_id: int) -> Callable[[MetadataImage], bool]:
    return lambda image: node_id in image.brokers and not image.brokers[node_id].is_fenced


# --- joining ----------------------------------------------------------------------------------


def test_a_broker_registers_and_kafkas_tools_see_it_unfenced(
    controllers: KraftControllers, tool: Callable[..., str]
) -> None:
    with joined(controllers, 1) as member:
        member.wait_until(Phase.RUNNING)
        image = member.wait_for_image(is_running(1))

        listed = tool("cluster", "list-endpoints", "--include-fenced-brokers")

    assert image.brokers[1].epoch == member.control.broker_epoch
    assert image.brokers[1].directories == member.directories
    assert image.features["metadata.version"] == 30
    assert image.brokers[100].endpoints[0].port == controllers.brokers[0].port
    (line,) = (line for line in listed.splitlines() if line.split()[0] == "1")
    assert "unfenced" in line


def test_a_broker_that_is_not_ready_stays_fenced(controllers: KraftControllers) -> None:
    with joined(controllers, 2, is_ready=False) as member:
        member.wait(lambda: member.control.is_caught_up)
        assert member.control.phase is Phase.FENCED
        assert member.control.image.brokers[2].is_fenced

        member.loop.call_soon(member.control.unfence)

        member.wait_until(Phase.RUNNING)


def test_another_cluster_is_refused(controllers: KraftControllers) -> None:
    with ControlMember(controllers.bootstrap, random_id(), node_id=3) as member:
        failure = member.wait_until_failed()

    assert isinstance(failure, ClusterMismatchError)


def test_a_feature_that_the_broker_lacks_is_named_with_what_to_do(
    controllers: KraftControllers,
) -> None:
    features = {"metadata.version": SUPPORTED_FEATURES["metadata.version"]}
    with joined(controllers, 4, features=features) as member:
        failure = member.wait_until_failed()

    assert isinstance(failure, RegistrationRefusedError)
    assert "group.version=1" in str(failure)
    assert "metadata.version=" not in str(failure)


def test_a_cluster_with_features_of_kafkas_default_is_refused_with_what_to_do(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    with (
        KraftControllers(kafka, tmp_path, features=()) as default,
        ControlMember(default.bootstrap, default.cluster_id) as member,
    ):
        failure = member.wait_until_failed()
        assert "share.version=1, streams.version=1" in str(failure)

        for feature in ("share.version=0", "streams.version=0"):
            kafka.run(
                "org.apache.kafka.tools.FeatureCommand",
                "--bootstrap-controller",
                default.bootstrap,
                "downgrade",
                "--feature",
                feature,
            )

        with ControlMember(default.bootstrap, default.cluster_id, node_id=2) as after:
            after.wait_until(Phase.RUNNING)


def test_a_node_id_in_use_waits_until_the_other_broker_is_silent_and_then_fences_it(
    controllers: KraftControllers,
) -> None:
    held = threading.Event()

    def pause() -> None:
        held.wait(60)

    with joined(controllers, 5) as first:
        first.wait_until(Phase.RUNNING)
        first.loop.call_soon(pause)  # as a stopped process
        with joined(controllers, 5) as second:
            second.wait_until(Phase.RUNNING)
            assert second.control.broker_epoch > first.control.broker_epoch
            assert first.control.is_fenced_by_silence

            held.set()
            failure = first.wait_until_failed()

    assert isinstance(failure, RegistrationRefusedError)
    assert "another broker with the same node.id" in str(failure)


# --- following --------------------------------------------------------------------------------


def test_a_topic_of_kafka_topics_appears_with_configs_and_disappears(
    controllers: KraftControllers, tool: Callable[..., str]
) -> None:
    with joined(controllers, 6) as member:
        config = ("--config", "retention.ms=12345")
        tool("topics", "--create", "--topic", "orders", "--partitions", "3", *config)

        image = member.wait_for_image(lambda image: image.topic("orders"))
        topic = image.topic("orders")
        assert topic is not None
        assert sorted(topic.partitions) == [0, 1, 2]
        assert image.config_of(2, "orders") == {"retention.ms": "12345"}

        tool("topics", "--delete", "--topic", "orders")

        image = member.wait_for_image(lambda image: image.topic("orders") is None)
        assert image.config_of(2, "orders") == {}


def test_a_snapshot_gives_the_same_image_as_the_log(controllers: KraftControllers) -> None:
    with joined(controllers, 7) as member:
        member.wait_until(Phase.RUNNING)
        # Long enough for several snapshots; the controller makes them in the background.
        for at in range(30):
            create_topic(member, f"snapshot-{at}", *([[100]] * 5))
        assert not member.changes[-1].is_whole
        directory = controllers.members[0].directory / "data" / "__cluster_metadata-0"
        member.wait(
            lambda: any(file.stem > f"{100:020}" for file in directory.glob("*.checkpoint")),
            polls=True,
        )

        with joined(controllers, 8) as late:
            late.wait_until(Phase.RUNNING)
            late.wait_for_image(lambda image: image.end >= member.control.image.end)
            member.wait_for_image(lambda image: image.end >= late.control.image.end)

            first = late.changes[0]
            assert first.is_whole
            assert len(first.new.topics) > 5
            assert late.control.image.topics == member.control.image.topics
            assert late.control.image.features == member.control.image.features
            assert late.control.image.configs == member.control.image.configs


# --- leading ----------------------------------------------------------------------------------


def test_isr_changes_are_made_refused_or_overtaken(controllers: KraftControllers) -> None:
    with joined(controllers, 11) as leader, joined(controllers, 12) as follower:
        leader.wait_until(Phase.RUNNING)
        follower.wait_until(Phase.RUNNING)
        topic = create_topic(leader, "isr", [11, 12])
        partition = topic.partitions[0]
        assert partition.leader == 11
        assert partition.directories[0] in (UUID(int=0), *leader.directories)
        mine = InSyncReplica(11, leader.control.broker_epoch)
        theirs = InSyncReplica(12, follower.control.broker_epoch)

        def change(epoch: int, *replicas: InSyncReplica) -> IsrOutcome:
            wish = IsrChange(
                topic_id=topic.topic_id,
                partition=0,
                leader_epoch=partition.leader_epoch,
                partition_epoch=epoch,
                in_sync=replicas,
            )
            outcome: IsrOutcome = leader.in_loop(lambda done: leader.control.change_isr(wish, done))
            return outcome

        shrunk = change(partition.partition_epoch, mine)
        assert shrunk.answer is IsrAnswer.MADE
        assert shrunk.in_sync == (11,)
        leader.wait_for_image(lambda image: _in_sync(image, topic) == (11,))

        stale = change(partition.partition_epoch, mine, theirs)
        assert stale.answer is IsrAnswer.OVERTAKEN

        other_life = change(shrunk.partition_epoch, mine, theirs._replace(broker_epoch=1))
        assert other_life.answer is IsrAnswer.REFUSED

        grown = change(shrunk.partition_epoch, mine, theirs)
        assert grown.answer is IsrAnswer.MADE
        assert grown.in_sync == (11, 12)


def _in_sync(image: MetadataImage, topic: TopicImage) -> tuple[int, ...]:
    partition = image.partition(topic.topic_id, 0)
    assert partition is not None
    return partition.in_sync


def test_producer_ids_come_in_blocks_that_nobody_else_gets(
    controllers: KraftControllers,
) -> None:
    with joined(controllers, 13) as member:
        member.wait_until(Phase.RUNNING)

        blocks: list[Any] = [member.in_loop(member.control.allocate_producer_ids) for _ in range(2)]

    assert [block.error_code for block in blocks] == [0, 0]
    assert blocks[1].producer_id_start >= blocks[0].producer_id_start + blocks[0].producer_id_len


# --- trouble and leaving ----------------------------------------------------------------------


def test_a_silent_broker_is_fenced_and_another_leads(controllers: KraftControllers) -> None:
    with joined(controllers, 21) as watcher:
        watcher.wait_until(Phase.RUNNING)
        with joined(controllers, 22) as silent:
            silent.wait_until(Phase.RUNNING)
            topic = create_topic(watcher, "silence", [22, 21])
            assert topic.partitions[0].leader == 22

        image = watcher.wait_for_image(lambda image: image.brokers[22].is_fenced)

        image = watcher.wait_for_image(lambda image: _leader(image, topic) == 21)
        assert _in_sync(image, topic) == (21,)


def _leader(image: MetadataImage, topic: TopicImage) -> int:
    partition = image.partition(topic.topic_id, 0)
    assert partition is not None
    return partition.leader


def test_a_controlled_shutdown_moves_leaders_first(controllers: KraftControllers) -> None:
    with joined(controllers, 23) as stays, joined(controllers, 24) as leaves:
        stays.wait_until(Phase.RUNNING)
        leaves.wait_until(Phase.RUNNING)
        topic = create_topic(stays, "leaving", [24, 23])

        leaves.in_loop(lambda done: leaves.control.leave(lambda: done(True)))

        assert leaves.control.phase is Phase.LEFT
        image = stays.wait_for_image(lambda image: _leader(image, topic) == 23)
        assert image.brokers[24].is_leaving


def test_a_failed_directory_is_told_to_the_controllers(controllers: KraftControllers) -> None:
    directories = (uuid4(), uuid4())
    with joined(controllers, 25, directories=directories) as member:
        member.wait_until(Phase.RUNNING)

        member.loop.call_soon(lambda: member.control.set_offline([directories[0]]))

        member.wait_for_image(lambda image: image.brokers[25].directories == directories[1:])


def test_the_directory_of_a_replica_is_told_and_its_loss_moves_the_leader(
    controllers: KraftControllers,
) -> None:
    directories = (uuid4(), uuid4())
    with (
        joined(controllers, 31, directories=directories) as member,
        joined(controllers, 32) as other,
    ):
        member.wait_until(Phase.RUNNING)
        other.wait_until(Phase.RUNNING)
        topic = create_topic(member, "places", [31, 32])

        def assign() -> None:
            member.control.assign_directory(topic.topic_id, 0, directories[0])

        member.loop.call_soon(assign)
        member.wait_for_image(lambda image: _directories(image, topic)[0] == directories[0])
        member.loop.call_soon(lambda: member.control.set_offline([directories[0]]))

        member.wait_for_image(lambda image: _leader(image, topic) == 32)


def _directories(image: MetadataImage, topic: TopicImage) -> tuple[UUID, ...]:
    partition = image.partition(topic.topic_id, 0)
    assert partition is not None
    return partition.directories


def test_a_broker_that_vouches_is_elected_cleanly_and_another_is_not(
    controllers: KraftControllers,
) -> None:
    """The last replica of a partition comes back after everybody was gone."""
    directories = (uuid4(),)
    with joined(controllers, 26, directories=directories) as member:
        member.wait_until(Phase.RUNNING)
        topic = create_topic(member, "vouching", [26])
        epoch = member.control.broker_epoch

    with joined(controllers, 26, directories=directories, previous_epoch=epoch) as back:
        back.wait_until(Phase.RUNNING)
        image = back.wait_for_image(lambda image: _leader(image, topic) == 26)
        partition = image.partition(topic.topic_id, 0)
        assert partition is not None
        assert partition.recovery.name == "RECOVERED"


def test_unregistering_a_broker_that_runs_ends_it(controllers: KraftControllers) -> None:
    with joined(controllers, 27) as member:
        member.wait_until(Phase.RUNNING)
        with joined(controllers, 28) as other:
            other.wait_until(Phase.RUNNING)

            answer = ask(other, ApiKey.UNREGISTER_BROKER, 0, {"broker_id": 27})
            assert answer.error_code == ErrorCode.none
            other.wait_for_image(lambda image: 27 not in image.brokers)

        failure = member.wait_until_failed()

    assert "unregistered" in str(failure)
