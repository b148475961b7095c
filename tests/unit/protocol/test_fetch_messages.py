"""Fetch by hand, in every version, with kafka-python as the judge of every byte."""

from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.consumer import FetchRequest, FetchResponse

from cordwood.errors import FormatError
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.fetch_request import (
    FIRST_WITH_SESSION,
    FIRST_WITH_TOPIC_ID,
    FetchPartition,
    decode_fetch_request,
)
from cordwood.protocol.fetch_response import (
    FIRST_WITH_RACK,
    FetchedPart,
    encode_fetch_response,
)
from cordwood.quantities import INT64_MAX

_API = API_CATALOG[ApiKey.FETCH]
VERSIONS = range(_API.min_version, _API.max_version + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.none() | st.text(max_size=5)
levels = st.integers(0, 1)
racks = st.text(max_size=8)
record_bytes = st.binary(max_size=200)
aborted_lists = st.none() | st.lists(st.tuples(int64s, int64s), max_size=2)
diverging_epochs = st.none() | st.tuples(st.integers(0, 2**31 - 1), int64s)
current_leaders = st.none() | st.tuples(int32s, int32s)
node_lists = st.lists(st.tuples(int32s, st.text(max_size=5), int32s, texts), max_size=2)


# Hypothesis examines a strategy when it is first used, which takes longer than an example.


@cache
def topics(version: int) -> st.SearchStrategy[str | UUID]:
    return st.uuids() if version >= FIRST_WITH_TOPIC_ID else st.text(min_size=1, max_size=8)


def named(topic: str | UUID) -> dict[str, Any]:
    return {"topic": topic} if isinstance(topic, str) else {"topic_id": topic}


@cache
def partitions(version: int) -> st.SearchStrategy[FetchPartition]:
    absent = st.just(-1)
    return st.builds(
        FetchPartition,
        topics(version),
        int32s,
        int64s,
        int32s,
        int32s if version >= 9 else absent,
        int32s if version >= 12 else absent,
        log_start=absent,
        high_watermark=st.just(INT64_MAX),
    )


@cache
def partition_lists(version: int) -> st.SearchStrategy[list[FetchPartition]]:
    return st.lists(partitions(version), max_size=4)


@cache
def forgotten_lists(version: int) -> st.SearchStrategy[list[tuple[str | UUID, int]]]:
    return st.lists(st.tuples(topics(version), int32s), max_size=2)


def their_request(version: int, parts: list[FetchPartition], **fields: Any) -> bytes:
    forgotten = fields.pop("forgotten", [])
    request = FetchRequest(
        version=version,
        topics=[
            FetchRequest.FetchTopic(
                version=version,
                **named(part.topic),
                partitions=[
                    FetchRequest.FetchTopic.FetchPartition(
                        version=version,
                        partition=part.partition,
                        current_leader_epoch=part.leader_epoch,
                        fetch_offset=part.offset,
                        last_fetched_epoch=part.last_fetched_epoch,
                        log_start_offset=-1,
                        partition_max_bytes=part.max_bytes,
                    )
                ],
            )
            for part in parts
        ],
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(version=version, **named(topic), partitions=[number])
            for topic, number in forgotten
        ],
        **fields,
    )
    return bytes(request.encode())


@every_version
@given(data=st.data())
def test_what_kafka_python_writes_is_read(version: int, data: st.DataObject) -> None:
    parts = data.draw(partition_lists(version))
    has_session = version >= FIRST_WITH_SESSION
    forgotten = data.draw(forgotten_lists(version)) if has_session else []
    numbers = [data.draw(int32s) for _ in range(3)]
    level = data.draw(levels)
    session = (data.draw(int32s), data.draw(int32s)) if has_session else (0, -1)
    rack = data.draw(racks) if version >= 11 else ""

    body = their_request(
        version,
        parts,
        max_wait_ms=numbers[0],
        min_bytes=numbers[1],
        max_bytes=numbers[2],
        isolation_level=level,
        session_id=session[0],
        session_epoch=session[1],
        forgotten=forgotten,
        rack_id=rack,
    )
    read = decode_fetch_request(version, memoryview(body))

    assert read.replica_id == -1
    assert [read.max_wait_ms, read.min_bytes, read.max_bytes] == numbers
    assert read.isolation_level == level
    assert (read.session_id, read.session_epoch) == session
    assert read.parts == parts
    assert read.forgotten == forgotten
    assert read.rack_id == rack


@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= 15])
def test_a_replica_says_who_it_is_in_a_tagged_field(version: int) -> None:
    state = FetchRequest.ReplicaState(version=version, replica_id=3, replica_epoch=9)
    body = their_request(
        version,
        [],
        replica_state=state,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=0,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        rack_id="",
    )

    assert decode_fetch_request(version, memoryview(body)).replica_id == 3


@every_version
def test_a_request_cut_short_anywhere_is_refused(version: int) -> None:
    topic = UUID(int=7) if version >= FIRST_WITH_TOPIC_ID else "orders"
    body = their_request(
        version,
        [FetchPartition(topic, 1, 5, 100)],
        max_wait_ms=1,
        min_bytes=1,
        max_bytes=1,
        isolation_level=0,
        session_id=0,
        session_epoch=-1,
        forgotten=[(topic, 1)] if version >= FIRST_WITH_SESSION else [],
        rack_id="r",
    )

    assert decode_fetch_request(version, memoryview(body)).parts[0].offset == 5
    for size in range(len(body)):
        with pytest.raises(FormatError):
            decode_fetch_request(version, memoryview(body)[:size])


@st.composite
def fetched_parts(draw: st.DrawFn, version: int) -> FetchedPart:
    records = draw(record_bytes)
    return FetchedPart(
        draw(topics(version)),
        draw(int32s),
        draw(int16s),
        draw(int64s),
        draw(int64s),
        draw(int64s),
        draw(aborted_lists),
        draw(diverging_epochs) if version >= 12 else None,
        len(records),
        records,
        draw(current_leaders) if version >= 12 else None,
        draw(int32s) if version >= FIRST_WITH_RACK else -1,
    )


@cache
def fetched_lists(version: int) -> st.SearchStrategy[list[FetchedPart]]:
    return st.lists(fetched_parts(version), max_size=4)


@every_version
@given(data=st.data())
def test_kafka_python_reads_our_answer_and_would_have_written_the_same(
    version: int, data: st.DataObject
) -> None:
    parts = data.draw(fetched_lists(version))
    correlation_id, session_id = data.draw(int32s), data.draw(int32s)
    error_code = data.draw(int16s)
    nodes = data.draw(node_lists)

    frame = b"".join(
        encode_fetch_response(
            version,
            correlation_id,
            parts,
            error_code=error_code,
            session_id=session_id,
            nodes=nodes,
        )
    )

    answer = FetchResponse.decode(frame, version=version, header=True, framed=True)
    assert answer.header.correlation_id == correlation_id
    answer._header = None
    head = 9 if _API.is_flexible(version) else 8
    assert bytes(answer.encode(version=version)) == frame[head:]
    if version >= FIRST_WITH_SESSION:
        assert (answer.error_code, answer.session_id) == (error_code, session_id)
    found = [(topic, part) for topic in answer.responses for part in topic.partitions]
    assert [
        (topic.topic if version < FIRST_WITH_TOPIC_ID else topic.topic_id, part.partition_index)
        for topic, part in found
    ] == [(part.topic, part.partition) for part in parts]
    for (_, read), sent in zip(found, parts, strict=True):
        check_part(version, read, sent)
    if version >= 16 and nodes:
        assert [(n.node_id, n.host, n.port, n.rack) for n in answer.node_endpoints] == nodes


def check_part(version: int, read: Any, sent: FetchedPart) -> None:
    assert read.error_code == sent.error_code
    assert read.high_watermark == sent.high_watermark
    assert read.last_stable_offset == sent.last_stable_offset
    assert version < 5 or read.log_start_offset == sent.log_start_offset
    assert bytes(read.records or b"") == sent.records
    assert version < FIRST_WITH_RACK or read.preferred_read_replica == sent.preferred_replica
    aborted = read.aborted_transactions
    assert (None if aborted is None else [(t.producer_id, t.first_offset) for t in aborted]) == (
        sent.aborted
    )
    if sent.leader is not None and sent.leader != (-1, -1):
        assert (read.current_leader.leader_id, read.current_leader.leader_epoch) == sent.leader
    if sent.diverging is not None:
        assert (read.diverging_epoch.epoch, read.diverging_epoch.end_offset) == sent.diverging


def test_records_are_handed_through_as_they_are() -> None:
    records = object()

    pieces = encode_fetch_response(12, 1, [FetchedPart("t", 0, size=100, records=records)])

    assert pieces[1] is records
    assert int.from_bytes(pieces[0][:4], "big") == len(pieces[0]) + 100 + len(pieces[2]) - 4
