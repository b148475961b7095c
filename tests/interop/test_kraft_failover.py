"""Our control channel and a quorum of three of Kafka's controllers, which are killed and paused."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from cordwood.cluster.control.broker_lifecycle import Phase, SessionTimes
from interop.control_member import ControlMember
from interop.kafka_peer import KafkaTools
from interop.kraft_controllers import KraftControllers, KraftNode
from interop.kraft_requests import create_topic


@pytest.fixture(scope="module")
def controllers(
    kafka: KafkaTools, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KraftControllers]:
    with KraftControllers(kafka, tmp_path_factory.mktemp("quorum"), count=3) as running:
        yield running


def leader_of(controllers: KraftControllers, member: ControlMember) -> KraftNode:
    """The active controller, as our observer sees it."""
    member.wait(lambda: member.control.leader_id >= 0)
    return next(m for m in controllers.members if m.node_id == member.control.leader_id)


def test_one_address_is_enough_to_find_whoever_leads(controllers: KraftControllers) -> None:
    for each in controllers.members:
        with ControlMember(each.address, controllers.cluster_id, node_id=1) as member:
            member.wait_until(Phase.RUNNING)


def test_a_broker_stays_a_member_when_the_active_controller_is_killed(
    controllers: KraftControllers,
) -> None:
    with ControlMember(controllers.bootstrap, controllers.cluster_id, node_id=2) as member:
        member.wait_until(Phase.RUNNING)
        create_topic(member, "before", [2])
        epoch, killed = member.control.broker_epoch, leader_of(controllers, member)

        controllers.kill(killed)
        try:
            topic = create_topic(member, "after", [2])

            assert topic.partitions[0].leader == 2
            assert member.control.leader_id != killed.node_id
            assert member.control.broker_epoch == epoch
            assert member.control.phase is Phase.RUNNING
            assert member.control.image.topic("before") is not None
            assert member.failure is None
        finally:
            controllers.launch(killed)


def test_a_broker_that_hears_nobody_for_a_session_counts_itself_as_fenced_and_comes_back(
    controllers: KraftControllers,
) -> None:
    times = SessionTimes(heartbeat_s=0.5, session_s=3.0)
    with ControlMember(
        controllers.bootstrap, controllers.cluster_id, node_id=3, times=times
    ) as member:
        member.wait_until(Phase.RUNNING)
        assert not member.control.is_fenced_by_silence
        epoch = member.control.broker_epoch
        paused = [each.process for each in controllers.members if each.process is not None]

        for process in paused:
            process.send_signal(signal.SIGSTOP)
        try:
            member.wait(lambda: member.control.is_fenced_by_silence, polls=True)
        finally:
            for process in paused:
                process.send_signal(signal.SIGCONT)

        member.wait(lambda: not member.control.is_fenced_by_silence, polls=True)
        member.wait_until(Phase.RUNNING)
        assert member.control.broker_epoch == epoch


def test_a_paused_leader_is_left_for_the_next_one(controllers: KraftControllers) -> None:
    with ControlMember(controllers.bootstrap, controllers.cluster_id, node_id=4) as member:
        member.wait_until(Phase.RUNNING)
        old = leader_of(controllers, member)
        assert old.process is not None

        old.process.send_signal(signal.SIGSTOP)
        try:
            create_topic(member, "while-paused", [4])
            assert member.control.leader_id != old.node_id
        finally:
            old.process.send_signal(signal.SIGCONT)
