"""How a broker keeps following the metadata log, whatever becomes of one image."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast
from uuid import UUID

import pytest

from cordwood.broker.cluster.control.control_follower import MetadataFollower
from cordwood.broker.cluster.control.control_quorum import Quorum, QuorumLink
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer
from cordwood.cluster.control.metadata_observer import MetadataObserver, ObserverRequest
from cordwood.cluster.image.image_change import ImageChange
from cordwood.cluster.image.record_schemas import RecordType
from cordwood.errors import BrokerUnreachableError, ClusterError, CordwoodError
from fakes.manual_scheduler import ManualScheduler
from fakes.metadata_log import FakeLeader, Value
from fakes.one_controller import OneController

VERSION = 17


class FollowerBench:
    """A follower whose loop is turned by hand."""

    def __init__(self, when_changed: Callable[[ImageChange], None] = lambda _change: None) -> None:
        self.leader = FakeLeader()
        self.scheduler = ManualScheduler()
        self.controller = OneController()
        self.failures: list[CordwoodError] = []
        self.observer = MetadataObserver(node_id=1, cluster_id="cluster", directory_id=UUID(int=5))
        self.follower = MetadataFollower(
            cast("EventLoop", self.scheduler),
            cast("Quorum", self.controller),
            cast("QuorumLink", self.controller),
            self.observer,
            when_changed=when_changed,
            when_leader=lambda: None,
            when_failed=self.failures.append,
        )
        self.follower.start()
        self.answer()  # who leads

    def answer(self) -> None:
        """The controller answers what was asked last, and that is applied."""
        call = self.controller.calls.pop()
        body = call.encode(VERSION)
        request = ObserverRequest(leader_id=3000, api=call.api, version=VERSION, body=body)
        call.when_done(OutboundAnswer(VERSION, self.leader.answer(request)))
        self.scheduler.run_ready()


def config(name: str) -> Value:
    return RecordType.CONFIG, 0, {
        "resource_type": 4, "resource_name": "", "name": name, "value": "1",
    }  # fmt: skip


def test_an_image_that_cannot_be_applied_does_not_end_the_following() -> None:
    seen: list[int] = []

    def fails_once(change: ImageChange) -> None:
        seen.append(change.new.end)
        if len(seen) == 1:
            raise ValueError("a bug")

    bench = FollowerBench(fails_once)
    bench.leader.append(config("a"))
    bench.answer()
    bench.leader.append(config("b"))
    bench.answer()

    assert seen == [1, 2]
    assert bench.failures == []


def test_a_broker_that_cannot_read_the_metadata_log_any_more_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = FollowerBench()
    bench.leader.append(config("a"))

    def fails(_count: int) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr(bench.observer, "advance", fails)
    bench.answer()

    [failure] = bench.failures
    assert isinstance(failure, ClusterError)
    assert "KeyError" in str(failure)
    assert bench.controller.calls == []


def test_a_controller_that_cannot_be_reached_is_logged_once_although_others_name_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    bench = FollowerBench()
    bench.answer()  # the leader: from here on the metadata is followed

    for _ in range(5):
        bench.controller.calls.pop().when_done(BrokerUnreachableError("c:9093", "refused"))
        bench.scheduler.advance(0.1)
        bench.answer()  # another controller, which still takes the one that is gone for the leader

    assert [record.levelname for record in caplog.records if "refused" in record.message] == [
        "WARNING"
    ]

    bench.answer()  # it is back, and leads
    bench.controller.calls.pop().when_done(BrokerUnreachableError("c:9093", "refused"))
    assert len([record for record in caplog.records if "refused" in record.message]) == 2
