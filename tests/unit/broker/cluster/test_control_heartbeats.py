"""Heartbeats of a broker, which nothing may end."""

from __future__ import annotations

from typing import Any, cast
from uuid import UUID

import pytest

from cordwood.broker.cluster.control.control_heartbeats import Heartbeats
from cordwood.broker.cluster.control.control_quorum import Quorum, QuorumLink
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer
from cordwood.cluster.control.broker_lifecycle import BrokerLifecycle, Phase, SessionTimes
from cordwood.cluster.control.membership import Membership
from cordwood.cluster.image.broker_image import Endpoint
from cordwood.cluster.image.metadata_image import NO_METADATA
from cordwood.errors import BrokerUnreachableError, CordwoodError
from cordwood.protocol.api_catalog import ApiKey
from fakes.manual_scheduler import ManualScheduler
from fakes.one_controller import OneController
from fakes.outbound_answers import answer_body

MEMBER = Membership(
    node_id=1,
    cluster_id="cluster",
    incarnation=UUID(int=1),
    endpoints=(Endpoint("PLAINTEXT", "h", 9092, 0),),
    directories=(UUID(int=2),),
)


def test_a_heartbeat_follows_although_its_answer_could_not_be_dealt_with() -> None:
    scheduler, controller = ManualScheduler(), OneController()
    phases: list[Phase] = []

    def fails(phase: Phase) -> None:
        phases.append(phase)
        raise ValueError("a bug")

    def answer(**fields: Any) -> None:
        call = controller.calls.pop()
        version = call.version_max
        call.encode(version)
        body = answer_body(call.api, version, fields)
        call.when_done(OutboundAnswer(version, body))

    heartbeats = Heartbeats(
        cast("EventLoop", scheduler),
        cast("Quorum", controller),
        cast("QuorumLink", controller),
        BrokerLifecycle(MEMBER, SessionTimes()),
        SessionTimes(),
        image=lambda: NO_METADATA,
        when_registered=lambda _epoch: None,
        when_phase=fails,
        when_failed=lambda _error: None,
    )
    heartbeats.start()
    with pytest.raises(ValueError, match="a bug"):
        answer(broker_epoch=7)
    scheduler.advance(1.0)
    assert [call.api for call in controller.calls] == [ApiKey.BROKER_HEARTBEAT]

    with pytest.raises(ValueError, match="a bug"):
        answer(is_fenced=False, is_caught_up=True)
    scheduler.advance(1.0)

    assert phases == [Phase.FENCED, Phase.RUNNING]
    assert [call.api for call in controller.calls] == [ApiKey.BROKER_HEARTBEAT]


@pytest.mark.parametrize("is_registered", [False, True])
def test_a_broker_that_could_not_register_in_time_ends_and_says_why(is_registered: bool) -> None:
    scheduler, controller = ManualScheduler(), OneController()
    failures: list[CordwoodError] = []
    times = SessionTimes(registration_s=60)
    heartbeats = Heartbeats(
        cast("EventLoop", scheduler),
        cast("Quorum", controller),
        cast("QuorumLink", controller),
        BrokerLifecycle(MEMBER, times),
        times,
        image=lambda: NO_METADATA,
        when_registered=lambda _epoch: None,
        when_phase=lambda _phase: None,
        when_failed=failures.append,
    )
    heartbeats.start()
    if is_registered:
        call = controller.calls.pop()
        call.encode(call.version_max)
        body = answer_body(call.api, call.version_max, {"broker_epoch": 7})
        call.when_done(OutboundAnswer(call.version_max, body))
    else:
        controller.calls.pop().when_done(BrokerUnreachableError("c:9093", "wrong password"))

    scheduler.advance(59)
    assert not failures
    scheduler.advance(2)

    if is_registered:
        assert not failures
    else:
        [failure] = failures
        assert "60 s (initial.broker.registration.timeout.ms)" in str(failure)
        assert "wrong password" in str(failure)
