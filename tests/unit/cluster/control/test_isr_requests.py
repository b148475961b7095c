"""Changes of ISRs leave together, one request at a time, and each gets its own answer."""

from __future__ import annotations

from functools import partial
from typing import Any
from uuid import UUID

import pytest

from cordwood.cluster.cluster_control import InSyncReplica, IsrAnswer, IsrChange, IsrOutcome
from cordwood.cluster.control.isr_requests import IsrCall, IsrRequests
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from cordwood.quantities import LeaderEpoch

A, B = UUID(int=100), UUID(int=200)


class Asked:
    def __init__(self) -> None:
        self.requests = IsrRequests(node_id=1)
        self.outcomes: list[tuple[UUID, int, IsrOutcome]] = []

    def want(self, topic: UUID, partition: int, *replicas: int) -> None:
        change = IsrChange(
            topic_id=topic,
            partition=partition,
            leader_epoch=LeaderEpoch(3),
            partition_epoch=8,
            in_sync=tuple(InSyncReplica(each, each * 10) for each in replicas),
        )
        self.requests.add(IsrCall(change, partial(self._note, topic, partition)))

    def _note(self, topic: UUID, partition: int, outcome: IsrOutcome) -> None:
        self.outcomes.append((topic, partition, outcome))

    def sent(self) -> Any:
        body = encode_request(ApiKey.ALTER_PARTITION, 3, self.requests.next_request(77))
        return decode_request(ApiKey.ALTER_PARTITION, 3, body)

    def answer(self, *topics: dict[str, Any], error_code: int = 0) -> None:
        frame = encode_response(
            ApiKey.ALTER_PARTITION, 3, 0, {"error_code": error_code, "topics": topics}
        )
        decoded: Any = decode_response(ApiKey.ALTER_PARTITION, 3, frame[9:])
        self.requests.answered(decoded)


@pytest.fixture
def asked() -> Asked:
    return Asked()


def part(number: int, code: int = 0, isr: tuple[int, ...] = (1,), epoch: int = 9) -> dict[str, Any]:
    return {
        "partition_index": number,
        "error_code": code,
        "isr": list(isr),
        "partition_epoch": epoch,
    }


def test_changes_leave_together(asked: Asked) -> None:
    asked.want(B, 0, 1, 2)
    asked.want(A, 1, 1)
    asked.want(A, 0, 1)

    sent = asked.sent()

    assert sent.broker_epoch == 77
    found = {
        (topic.topic_id, each.partition_index): [
            (replica.broker_id, replica.broker_epoch) for replica in each.new_isr_with_epochs
        ]
        for topic in sent.topics
        for each in topic.partitions
    }
    assert found == {(A, 0): [(1, 10)], (A, 1): [(1, 10)], (B, 0): [(1, 10), (2, 20)]}
    assert len(sent.topics) == 2


def test_only_one_request_is_out(asked: Asked) -> None:
    asked.want(A, 0, 1)
    asked.sent()

    asked.want(A, 1, 1)
    assert not asked.requests.has_work

    asked.answer({"topic_id": A, "partitions": [part(0)]})
    assert asked.requests.has_work


def test_each_change_gets_its_own_answer(asked: Asked) -> None:
    for number in range(4):
        asked.want(A, number, 1)
    asked.sent()

    asked.answer(
        {
            "topic_id": A,
            "partitions": [
                part(0),
                part(1, ErrorCode.ineligible_replica),
                part(2, ErrorCode.invalid_update_version),
            ],
        }
    )

    answers = {number: outcome.answer for _, number, outcome in asked.outcomes}
    assert answers == {
        0: IsrAnswer.MADE,
        1: IsrAnswer.REFUSED,
        2: IsrAnswer.OVERTAKEN,
        3: IsrAnswer.RETRY,  # the answer does not mention it
    }
    assert asked.outcomes[0][2].partition_epoch == 9
    assert asked.outcomes[0][2].in_sync == (1,)


def test_a_change_that_is_replaced_is_answered_once(asked: Asked) -> None:
    asked.want(A, 0, 1)
    asked.want(A, 0, 1, 2)

    assert [outcome.answer for _, _, outcome in asked.outcomes] == [IsrAnswer.RETRY]
    assert len(asked.sent().topics[0].partitions[0].new_isr_with_epochs) == 2


def test_without_an_answer_nothing_is_known(asked: Asked) -> None:
    asked.want(A, 0, 1)
    asked.sent()

    asked.requests.failed()

    assert [outcome.answer for _, _, outcome in asked.outcomes] == [IsrAnswer.RETRY]
    assert not asked.requests.has_work


def test_an_error_of_the_whole_request_is_that_of_each_change(asked: Asked) -> None:
    asked.want(A, 0, 1)
    asked.want(B, 0, 1)
    asked.sent()

    asked.answer(error_code=ErrorCode.stale_broker_epoch)

    assert {outcome.answer for _, _, outcome in asked.outcomes} == {IsrAnswer.OVERTAKEN}
