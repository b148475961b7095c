"""Places of replicas are told until they are confirmed."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from cordwood.cluster.control.directory_assignments import DirectoryAssignments
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import (
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)

TOPIC, ONE, TWO = UUID(int=100), UUID(int=1001), UUID(int=1002)
API = ApiKey.ASSIGN_REPLICAS_TO_DIRS


def sent(places: DirectoryAssignments) -> dict[tuple[UUID, int], UUID]:
    found: Any = decode_request(API, 0, encode_request(API, 0, places.next_request(7)))
    assert found.broker_epoch == 7
    return {
        (topic.topic_id, part.partition_index): directory.id
        for directory in found.directories
        for topic in directory.topics
        for part in topic.partitions
    }


def answer(places: DirectoryAssignments, code: int = 0, **parts: int) -> bool:
    partitions = [
        {"partition_index": int(number[1:]), "error_code": error} for number, error in parts.items()
    ]
    topics = [{"topic_id": TOPIC, "partitions": partitions}]
    response = {"error_code": code, "directories": [{"id": ONE, "topics": topics}]}
    decoded: Any = decode_response(API, 0, encode_response(API, 0, 0, response)[9:])
    return places.answered(decoded)


def test_replicas_are_told_by_directory() -> None:
    places = DirectoryAssignments(1)
    places.add(TOPIC, 0, ONE)
    places.add(TOPIC, 1, TWO)

    assert sent(places) == {(TOPIC, 0): ONE, (TOPIC, 1): TWO}
    assert not places.has_work
    assert answer(places, p0=0, p1=0)
    assert places.unconfirmed_count == 0


def test_what_is_refused_or_lost_is_told_again() -> None:
    places = DirectoryAssignments(1)
    places.add(TOPIC, 0, ONE)
    sent(places)
    assert not answer(places, p0=ErrorCode.request_timed_out)
    assert sent(places) == {(TOPIC, 0): ONE}

    places.failed()
    assert sent(places) == {(TOPIC, 0): ONE}

    assert not answer(places, ErrorCode.not_controller)
    assert sent(places) == {(TOPIC, 0): ONE}


def test_a_newer_place_is_the_one_that_is_told_again() -> None:
    places = DirectoryAssignments(1)
    places.add(TOPIC, 0, ONE)
    sent(places)

    places.add(TOPIC, 0, TWO)
    places.failed()

    assert sent(places) == {(TOPIC, 0): TWO}


def test_a_replica_that_is_gone_is_not_told_again() -> None:
    places = DirectoryAssignments(1)
    places.add(TOPIC, 0, ONE)
    sent(places)

    places.forget(TOPIC, 0)
    places.failed()

    assert places.unconfirmed_count == 0
