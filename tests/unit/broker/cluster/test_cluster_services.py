"""Producer ids that a member of a cluster gets from the controllers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest

from cordwood.broker.cluster.cluster_services import ClusterProducerIds
from cordwood.broker.cluster.control.deciding_control import DecidingControl
from cordwood.broker.error_codes import RefusedError
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.errors import BrokerUnreachableError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_response
from fakes.outbound_answers import answer_body

BLOCK = 120


class Controllers:
    """Give blocks when the test says so. It is the loop, too: calls run at once."""

    def __init__(self, *, are_silent: bool = False) -> None:
        self.are_silent = are_silent
        self.waiting: list[Callable[[Any], None]] = []
        self.blocks = 0
        self.ids = ClusterProducerIds(
            cast("DecidingControl", self), cast("EventLoop", self), wait_s=0.01
        )

    def call_soon(self, function: Callable[[], None]) -> None:
        function()

    def allocate_producer_ids(self, when_done: Callable[[Any], None]) -> None:
        self.waiting.append(when_done)
        if not self.are_silent:
            self.answer()

    def answer(self, error_code: int = ErrorCode.none) -> None:
        start = 1000 + BLOCK * self.blocks
        self.blocks += 1
        fields = {
            "error_code": error_code, "producer_id_start": start, "producer_id_len": BLOCK,
        }  # fmt: skip
        body = answer_body(ApiKey.ALLOCATE_PRODUCER_IDS, 0, fields)
        self.waiting.pop()(decode_response(ApiKey.ALLOCATE_PRODUCER_IDS, 0, body))


def test_every_id_is_given_once_over_several_blocks() -> None:
    controllers = Controllers()

    given = [controllers.ids.allocate() for _ in range(3 * BLOCK)]

    assert given == list(range(1000, 1000 + 3 * BLOCK))


def test_the_next_block_is_asked_for_before_the_last_one_is_used_up() -> None:
    controllers = Controllers()
    controllers.ids.allocate()
    controllers.are_silent = True

    for _ in range(BLOCK - 1):
        controllers.ids.allocate()

    assert len(controllers.waiting) == 1


def test_producers_are_told_to_try_again_while_the_controllers_are_silent() -> None:
    controllers = Controllers(are_silent=True)

    for _ in range(2):
        with pytest.raises(RefusedError) as refused:
            controllers.ids.allocate()
        assert refused.value.code is ErrorCode.coordinator_load_in_progress
    assert len(controllers.waiting) == 1

    controllers.answer()
    assert controllers.ids.allocate() == 1000


@pytest.mark.parametrize("is_unreachable", [True, False])
def test_a_refusal_is_followed_by_another_question(is_unreachable: bool) -> None:
    controllers = Controllers(are_silent=True)
    with pytest.raises(RefusedError):
        controllers.ids.allocate()
    if is_unreachable:
        controllers.waiting.pop()(BrokerUnreachableError("the active controller", "gone"))
    else:
        controllers.answer(ErrorCode.stale_broker_epoch)

    controllers.are_silent = False

    assert controllers.ids.allocate() >= 1000
