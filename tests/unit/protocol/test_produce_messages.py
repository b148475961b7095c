"""Produce by hand, in every version, with kafka-python as the judge of every byte."""

import struct
from functools import cache
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from cordwood.errors import FormatError
from cordwood.protocol.api_catalog import API_CATALOG, ApiKey
from cordwood.protocol.produce_request import FIRST_WITH_TOPIC_ID, decode_produce_request
from cordwood.protocol.produce_response import ProducedPart, SoleResponse, encode_produce_response
from cordwood.quantities import Offset

_API = API_CATALOG[ApiKey.PRODUCE]
VERSIONS = range(_API.min_version, _API.max_version + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
texts = st.text(max_size=8)
optional_texts = st.none() | texts
records = st.none() | st.binary(max_size=300)


# Hypothesis examines a strategy when it is first used, which takes longer than an example.


@cache
def topics(version: int) -> st.SearchStrategy[str | UUID]:
    return st.uuids() if version >= FIRST_WITH_TOPIC_ID else st.text(min_size=1, max_size=8)


@cache
def wanted_lists(
    version: int,
) -> st.SearchStrategy[list[tuple[str | UUID, list[tuple[int, bytes | None]]]]]:
    parts = st.lists(st.tuples(int32s, records), max_size=3)
    return st.lists(st.tuples(topics(version), parts), max_size=3)


def named(topic: str | UUID) -> dict[str, Any]:
    return {"name": topic} if isinstance(topic, str) else {"topic_id": topic}


@every_version
@given(data=st.data())
def test_what_kafka_python_writes_is_read(version: int, data: st.DataObject) -> None:
    wanted = data.draw(wanted_lists(version))
    transactional_id = data.draw(optional_texts)
    acks, timeout_ms = data.draw(int16s), data.draw(int32s)
    theirs = ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            ProduceRequest.TopicProduceData(
                version=version,
                **named(topic),
                partition_data=[
                    ProduceRequest.TopicProduceData.PartitionProduceData(
                        version=version, index=index, records=sent
                    )
                    for index, sent in parts
                ],
            )
            for topic, parts in wanted
        ],
    )

    read = decode_produce_request(version, memoryview(bytes(theirs.encode())))

    assert read[:3] == (transactional_id, acks, timeout_ms)
    assert [(part.topic, part.partition, bytes(part.records)) for part in read.parts] == [
        (topic, index, sent or b"") for topic, parts in wanted for index, sent in parts
    ]


@every_version
def test_a_request_cut_short_anywhere_is_refused(version: int) -> None:
    topic = UUID(int=7) if version >= FIRST_WITH_TOPIC_ID else "orders"
    part = ProduceRequest.TopicProduceData.PartitionProduceData(
        version=version, index=1, records=b"x" * 200
    )
    body = bytes(
        ProduceRequest(
            version=version,
            transactional_id="t",
            acks=-1,
            timeout_ms=1,
            topic_data=[
                ProduceRequest.TopicProduceData(
                    version=version, **named(topic), partition_data=[part]
                )
            ],
        ).encode()
    )

    assert decode_produce_request(version, memoryview(body)).transactional_id == "t"
    for size in range(len(body)):
        with pytest.raises(FormatError):
            decode_produce_request(version, memoryview(body)[:size])


@cache
def produced_lists(version: int) -> st.SearchStrategy[list[ProducedPart]]:
    return st.lists(produced_parts(version), max_size=4)


def produced_parts(version: int) -> st.SearchStrategy[ProducedPart]:
    return st.builds(
        ProducedPart,
        topics(version),
        int32s,
        int16s,
        int64s,
        int64s,
        int64s,
        st.lists(st.tuples(int32s, texts), max_size=2),
        st.none() | texts,
        st.none() | st.tuples(int32s, int32s),
    )


@every_version
@given(data=st.data())
def test_kafka_python_reads_our_answer_and_would_have_written_the_same(
    version: int, data: st.DataObject
) -> None:
    parts = data.draw(produced_lists(version))
    correlation_id = data.draw(int32s)

    frame = encode_produce_response(version, correlation_id, parts)

    answer = ProduceResponse.decode(frame, version=version, header=True, framed=True)
    assert answer.header.correlation_id == correlation_id
    answer._header = None
    head = 9 if _API.is_flexible(version) else 8
    assert bytes(answer.encode(version=version)) == frame[head:]
    found = [(topic, part) for topic in answer.responses for part in topic.partition_responses]
    assert [
        (topic.name if version < FIRST_WITH_TOPIC_ID else topic.topic_id, part.index)
        for topic, part in found
    ] == [(part.topic, part.partition) for part in parts]
    for (_, read), sent in zip(found, parts, strict=True):
        assert (read.error_code, read.base_offset) == (sent.error_code, sent.base_offset)
        assert read.log_append_time_ms == sent.log_append_time_ms
        if version >= 5:
            assert read.log_start_offset == sent.log_start_offset
        if version >= 8:
            assert read.error_message == sent.error_message
            assert [
                (error.batch_index, error.batch_index_error_message) for error in read.record_errors
            ] == list(sent.record_errors)


@pytest.mark.parametrize("version", [v for v in VERSIONS if v < FIRST_WITH_TOPIC_ID])
@given(
    topic=st.text(min_size=1, max_size=20),
    partition=st.integers(0, 2**31 - 1),
    correlation_id=int32s,
    offset=st.integers(0, 2**63 - 1),
    start=st.integers(0, 2**63 - 1),
)
def test_the_answer_made_beforehand_is_the_one_made_in_full(
    version: int, topic: str, partition: int, correlation_id: int, offset: int, start: int
) -> None:
    prepared = SoleResponse(version, topic, partition).encode(correlation_id, offset, start)

    part = ProducedPart(topic, partition, 0, offset, -1, start)
    assert prepared == encode_produce_response(version, correlation_id, [part])


def test_records_stay_where_they_were_received() -> None:
    body = bytearray(b"\xff\xff" + struct.pack(">hiih", -1, 1, 1, 1) + b"t")
    body += struct.pack(">iii", 1, 0, 3) + b"abc"

    (part,) = decode_produce_request(3, memoryview(body)).parts
    body[-1:] = b"z"

    assert bytes(part.records) == b"abz"


@pytest.mark.parametrize("version", [3, 5, 9, 12])
def test_answers_that_are_encoded_together_are_those_that_are_encoded_one_by_one(
    version: int,
) -> None:
    response = SoleResponse(version, "orders", 3)

    for log_start in (0, 7, 7, 8, 0):
        frames, size = response.encode_all([5, 6], [Offset(20), Offset(30)], log_start)

        first, second = response.encode(5, 20, log_start), response.encode(6, 30, log_start)
        assert bytes(frames) == first + second
        assert size == len(first)
