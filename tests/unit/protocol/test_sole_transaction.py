"""The usual requests of transactional producers: read and answered as the long way does it."""

import contextlib

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cordwood.errors import FormatError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import decode_request, encode_request, encode_response
from cordwood.protocol.request_header import decode_request_header, skip_header_tags
from cordwood.protocol.sole_transaction import (
    encode_added,
    encode_ended,
    find_sole_add,
    find_sole_end,
)
from wire.raw_client import request_header

ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN
FIRST_FLEXIBLE = 3

ids = st.text(max_size=150)
names = st.text(max_size=5)
int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def add_frame(
    version: int, id_: str, producer: tuple[int, int], topics: list[tuple[str, list[int]]]
) -> bytes:
    body = encode_request(
        ADD,
        version,
        {
            "v3_and_below_transactional_id": id_,
            "v3_and_below_producer_id": producer[0],
            "v3_and_below_producer_epoch": producer[1],
            "v3_and_below_topics": [
                {"name": name, "partitions": numbers} for name, numbers in topics
            ],
        },
    )
    return request_header(ADD, version, 7, "client") + body


def end_frame(version: int, id_: str, producer: tuple[int, int], *, is_commit: bool) -> bytes:
    body = encode_request(
        END,
        version,
        {
            "transactional_id": id_,
            "producer_id": producer[0],
            "producer_epoch": producer[1],
            "committed": is_commit,
        },
    )
    return request_header(END, version, 7, "client") + body


@st.composite
def add_frames(draw: st.DrawFn) -> bytes:
    topics = draw(
        st.lists(
            st.tuples(names, st.lists(int32s, max_size=3)),
            max_size=draw(st.sampled_from([1, 1, 1, 2])),
        )
    )
    return _changed(
        draw, add_frame(draw(st.integers(0, 3)), draw(ids), (draw(int64s), draw(int16s)), topics)
    )


@st.composite
def end_frames(draw: st.DrawFn) -> bytes:
    producer = draw(int64s), draw(int16s)
    frame = end_frame(draw(st.integers(0, 5)), draw(ids), producer, is_commit=draw(st.booleans()))
    return _changed(draw, frame)


def _changed(draw: st.DrawFn, frame: bytes) -> bytes:
    data = bytearray(frame)
    for _ in range(draw(st.sampled_from([0, 0, 1, 3]))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 5]))])


NAME_IN_NO_ENCODING = bytes.fromhex(
    "0018 0000 00000007 0006 636c69656e74 0001 30 0000000000000000 0000"
    "00000001 0002 0080 00000001 00000000"
)


@given(add_frames(), st.binary(max_size=3))
@example(NAME_IN_NO_ENCODING, b"")
def test_an_add_that_is_found_is_what_the_long_way_reads(frame: bytes, behind: bytes) -> None:
    found = find_sole_add(memoryview(frame + behind), 0, len(frame))
    if found is None:
        return

    header, at = decode_request_header(memoryview(frame))
    request = decode_request(ADD, found.version, memoryview(frame)[at:])

    assert header[:3] == (ADD, found.version, found.correlation_id)
    (topic,) = request.v3_and_below_topics
    assert (topic.name, tuple(topic.partitions)) == (found.name.decode(), found.partitions)
    assert request.v3_and_below_transactional_id == found.transactional_id
    assert request.v3_and_below_producer_id == found.producer_id
    assert request.v3_and_below_producer_epoch == found.epoch


@given(end_frames(), st.binary(max_size=3))
def test_an_end_that_is_found_is_what_the_long_way_reads(frame: bytes, behind: bytes) -> None:
    found = find_sole_end(memoryview(frame + behind), 0, len(frame))
    if found is None:
        return

    header, at = decode_request_header(memoryview(frame))
    if found.version >= FIRST_FLEXIBLE:
        at = skip_header_tags(memoryview(frame), at)
    request = decode_request(END, found.version, memoryview(frame)[at:])

    assert header[:3] == (END, found.version, found.correlation_id)
    assert request.transactional_id == found.transactional_id
    assert (request.producer_id, request.producer_epoch) == (found.producer_id, found.epoch)
    assert request.committed is found.is_commit


@given(st.binary(max_size=60))
def test_anything_else_is_left_to_the_long_way(data: bytes) -> None:
    with contextlib.suppress(FormatError):
        find_sole_add(memoryview(data), 0, len(data))
        find_sole_end(memoryview(data), 0, len(data))


@pytest.mark.parametrize("version", range(3))
def test_the_add_of_a_usual_client_is_found_and_answered_with_the_same_bytes(version: int) -> None:
    frame = add_frame(version, "billing", (5, 2), [("orders", [0, 3])])

    found = find_sole_add(memoryview(frame), 0, len(frame))

    assert found is not None
    assert encode_added(found, 48) == encode_response(
        ADD,
        version,
        7,
        {
            "results_by_topic_v3_and_below": [
                {
                    "name": "orders",
                    "results_by_partition": [
                        {"partition_index": number, "partition_error_code": 48} for number in (0, 3)
                    ],
                }
            ]
        },
    )


@pytest.mark.parametrize("version", range(6))
def test_the_end_of_a_usual_client_is_found_and_answered_with_the_same_bytes(version: int) -> None:
    frame = end_frame(version, "billing", (5, 2), is_commit=True)

    found = find_sole_end(memoryview(frame), 0, len(frame))

    assert found is not None
    assert found.is_commit
    assert encode_ended(found, 0, 5, 3) == encode_response(
        END, version, 7, {"error_code": 0, "producer_id": 5, "producer_epoch": 3}
    )
    assert encode_ended(found, 90) == encode_response(END, version, 7, {"error_code": 90})
