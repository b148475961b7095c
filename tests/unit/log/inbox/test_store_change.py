"""Requests and answers come back as they were; what is neither is refused, whatever it is."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import pytest

from cordwood.errors import FormatError
from cordwood.format.index_entry import AbortedTransaction
from cordwood.log.inbox.store_change import (
    ChangeAnswer,
    ChangeRequest,
    CommitGroup,
    PublishBatches,
    SegmentPlace,
    StagedBatches,
    StagedSegment,
    StoreChange,
    SwapSegments,
    parse_answer,
    parse_request,
    render_answer,
    render_request,
)
from cordwood.log.publishing.publication import PublicationId
from cordwood.quantities import Offset, ProducerId, TimestampMs

ID = "0123456789abcdef" * 2
PUBLISH = PublishBatches(
    publication=PublicationId(application="etl", number=4, is_transient=True),
    files=(StagedBatches(staging_id=ID, name="rows.batches", size=900),),
    topics={"orders": 3},
)
SWAP = SwapSegments(
    topic="orders",
    topic_id=UUID(int=5),
    partition=1,
    planned_on=(
        SegmentPlace(base_offset=Offset(0), next_offset=Offset(10), size=300),
        SegmentPlace(base_offset=Offset(10), next_offset=Offset(20), size=301),
    ),
    files=(StagedSegment(name="0.log", base_offset=Offset(0), size=200),),
    cleaned_up_to=Offset(20),
    aborted=(
        AbortedTransaction(
            producer_id=ProducerId(1),
            first_offset=Offset(2),
            last_offset=Offset(4),
            last_stable_offset=Offset(4),
        ),
    ),
)
COMMIT = CommitGroup(group="billing", offsets={("orders", 0): (7, "so far")})


@pytest.mark.parametrize("change", [PUBLISH, SWAP, COMMIT])
def test_a_request_is_parsed_as_it_was_rendered(change: StoreChange) -> None:
    request = ChangeRequest(change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(99))

    assert parse_request(render_request(request)) == request


@pytest.mark.parametrize("answer", [ChangeAnswer(outcome="done", facts={"a": [1]})])
def test_an_answer_is_parsed_as_it_was_rendered(answer: ChangeAnswer) -> None:
    assert parse_answer(render_answer(answer)) == answer


def rendered(change: StoreChange) -> dict[str, Any]:
    found = json.loads(
        render_request(
            ChangeRequest(change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(99))
        )
    )
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize(
    "content",
    [b"", b"[]", b"null", b"{}", b'{"version": 1}', b"\xff\xfe", b"[" * 10_000, b'{"version": 2}'],
)
def test_what_is_no_request_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_request(content)


@pytest.mark.parametrize("change", [PUBLISH, SWAP, COMMIT])
def test_a_request_that_lacks_something_is_refused(change: StoreChange) -> None:
    whole = rendered(change)
    for name in whole:
        partial = {other: value for other, value in whole.items() if other != name}

        with pytest.raises(FormatError):
            parse_request(json.dumps(partial).encode())


@pytest.mark.parametrize("change", [PUBLISH, SWAP, COMMIT])
@pytest.mark.parametrize(
    "nonsense", [None, -1, 1.5, "x" * 5000, [], {}, [None], [[1, 2]], True, 2**70, ["../x"]]
)
def test_a_request_with_nonsense_in_it_is_refused_or_harmless(
    change: StoreChange, nonsense: object
) -> None:
    whole = rendered(change)
    for name in whole:
        content = json.dumps({**whole, name: nonsense}).encode()
        try:
            parsed = parse_request(content)
        except FormatError:
            continue
        assert isinstance(parsed, ChangeRequest)


@pytest.mark.parametrize(
    "name",
    ["../x", "/etc/passwd", "..", ".", "", "a/b", "a\\..\\b/..", ".hidden", "x\x00y", "é", "-x"],
)
@pytest.mark.parametrize("change", [PUBLISH, SWAP])
def test_a_file_name_that_leads_elsewhere_is_refused(change: StoreChange, name: str) -> None:
    whole = rendered(change)
    at = 1 if isinstance(change, PublishBatches) else 0
    whole["files"][0][at] = name

    with pytest.raises(FormatError):
        parse_request(json.dumps(whole).encode())


@pytest.mark.parametrize("staging_id", ["..", "../" * 10, "A" * 32, ID + "0", "", 7])
def test_a_staging_id_that_leads_elsewhere_is_refused(staging_id: object) -> None:
    whole = rendered(PUBLISH)
    whole["files"][0][0] = staging_id

    with pytest.raises(FormatError):
        parse_request(json.dumps(whole).encode())


@pytest.mark.parametrize("topic", ["../orders", "a/b", "", ".", "x" * 300])
def test_a_topic_that_cannot_be_one_is_refused(topic: str) -> None:
    with pytest.raises(FormatError):
        parse_request(json.dumps({**rendered(SWAP), "topic": topic}).encode())
    with pytest.raises(FormatError):
        parse_request(json.dumps({**rendered(PUBLISH), "topics": {topic: 1}}).encode())


@pytest.mark.parametrize("content", [b"", b"{}", b'{"version": 1, "outcome": "maybe"}'])
def test_what_is_no_answer_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError):
        parse_answer(content)
