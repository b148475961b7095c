"""Requests and answers of the load generator, beside those of a library that knows all of them."""

from __future__ import annotations

import datetime
import io
from typing import Any

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.fetch.v11 import request as fetch_request
from kio.schema.fetch.v11 import response as fetch_response
from kio.schema.produce.v10 import request as produce_request
from kio.schema.produce.v10 import response as produce_response
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType
from kio.static.primitive import i16, i32, i32Timedelta, i64

from bench.kafka_wire import (
    AnswerError,
    api_versions_frame,
    count_batches,
    fetch_error,
    fetch_frame,
    fetched_records,
    produce_error,
    produce_error_position,
    produce_frame,
    produce_frames,
)
from cordwood.format.batch_header import decode_batch_header

_TOPIC = "bench-7"
_HEADER_SIZE = 8 + 2 + len(b"bench")  # api key, version, correlation id, client id


def _body(frame: bytes, *, tags: int) -> bytes:
    """A request without its size and header."""
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    return frame[4 + _HEADER_SIZE + tags :]


def _decoded(schema: Any, body: bytes) -> Any:
    decoded, size = entity_reader(schema)(body, 0)
    assert size == len(body)
    return decoded


def _encoded(entity: Any, *, header: bytes) -> bytes:
    """A whole answer."""
    buffer = io.BytesIO()
    entity_writer(type(entity))(buffer, entity)
    content = header + buffer.getvalue()
    return len(content).to_bytes(4, "big") + content


def _produce_answer(error: ErrorCode, topic: str = _TOPIC) -> bytes:
    partition = produce_response.PartitionProduceResponse(
        index=i32(0), error_code=error, base_offset=i64(12), record_errors=()
    )
    answer = produce_response.ProduceResponse(
        responses=(
            produce_response.TopicProduceResponse(name=topic, partition_responses=(partition,)),  # type: ignore[arg-type]
        )
    )
    return _encoded(answer, header=bytes(5))


def _fetch_answer(
    records: bytes | None, *, error: ErrorCode = ErrorCode.none, aborted: int | None = None
) -> memoryview:
    transactions = None
    if aborted is not None:
        one = fetch_response.AbortedTransaction(producer_id=i64(1), first_offset=i64(2))  # type: ignore[arg-type]
        transactions = (one,) * aborted
    partition = fetch_response.PartitionData(
        partition_index=i32(0),
        error_code=error,
        high_watermark=i64(100),
        aborted_transactions=transactions,
        records=records,  # type: ignore[arg-type]
    )
    answer = fetch_response.FetchResponse(
        throttle_time=i32Timedelta.parse(datetime.timedelta(0)),
        error_code=ErrorCode.none,
        responses=(
            fetch_response.FetchableTopicResponse(topic=_TOPIC, partitions=(partition,)),  # type: ignore[arg-type]
        ),
    )
    return memoryview(_encoded(answer, header=bytes(4)))


def _batches(count: int, *, values_in_each: int) -> bytes:
    """Batches one after the other, at the offsets a log would give them."""
    built = bytearray()
    for number in range(count):
        (frame,) = produce_frames(
            _TOPIC, [b"value"] * values_in_each, batch_bytes=4096, now_ms=1_700_000_000_000
        )
        decoded = _decoded(produce_request.ProduceRequest, _body(frame.data, tags=1))
        batch = bytearray(decoded.topic_data[0].partition_data[0].records)
        batch[:8] = (number * values_in_each).to_bytes(8, "big")
        built += batch
    return bytes(built)


def test_a_produce_request_is_what_other_libraries_read_and_write() -> None:
    batch = bytes(range(256)) * 300

    frame = produce_frame(_TOPIC, batch)

    decoded = _decoded(produce_request.ProduceRequest, _body(frame, tags=1))
    assert frame[4:8] == bytes([0, 0, 0, 10])
    assert (decoded.acks, decoded.transactional_id) == (-1, None)
    (topic,) = decoded.topic_data
    (partition,) = topic.partition_data
    assert (topic.name, partition.index, bytes(partition.records)) == (_TOPIC, 0, batch)
    assert produce_request.ProduceRequest.__type__ is EntityType.request


def test_a_fetch_request_is_what_other_libraries_read_and_write() -> None:
    frame = fetch_frame(_TOPIC, 12_345, max_bytes=1 << 20, max_wait_ms=250, min_bytes=7)

    decoded = _decoded(fetch_request.FetchRequest, _body(frame, tags=0))
    assert frame[4:8] == bytes([0, 1, 0, 11])
    assert decoded.max_wait == datetime.timedelta(milliseconds=250)
    assert (decoded.min_bytes, decoded.max_bytes) == (7, 1 << 20)
    assert (decoded.session_id, decoded.session_epoch, decoded.isolation_level) == (0, -1, 0)
    ((partition,),) = [topic.partitions for topic in decoded.topics]
    assert (partition.partition, partition.fetch_offset) == (0, 12_345)
    assert partition.partition_max_bytes == 1 << 20


def test_asking_for_versions_is_a_header_alone() -> None:
    frame = api_versions_frame()

    assert frame[4:8] == bytes([0, 18, 0, 0])
    assert _body(frame, tags=0) == b""


def test_frames_carry_all_values_in_batches_no_larger_than_asked_for() -> None:
    values = [bytes([number % 251]) * 100 for number in range(2000)]

    frames = produce_frames(_TOPIC, values, batch_bytes=65_536, now_ms=1_700_000_000_000)

    assert sum(frame.records for frame in frames) == 2000
    for frame in frames:
        decoded = _decoded(produce_request.ProduceRequest, _body(frame.data, tags=1))
        batch = bytes(decoded.topic_data[0].partition_data[0].records)
        header = decode_batch_header(memoryview(batch))
        assert len(batch) <= 65_536 + 61
        assert (header.size, header.record_count) == (len(batch), frame.records)
        assert header.base_timestamp == 1_700_000_000_000


@pytest.mark.parametrize("topic", ["t", _TOPIC, "x" * 249])
def test_the_error_of_a_produce_answer_is_where_it_is_looked_for(topic: str) -> None:
    fine = _produce_answer(ErrorCode.none, topic)
    refused = _produce_answer(ErrorCode.not_leader_or_follower, topic)

    errors = produce_error(fine, topic), produce_error(refused, topic)

    position = produce_error_position(topic)
    assert errors == (0, 6)
    assert fine[position : position + 2] == b"\x00\x00"


def test_a_produce_answer_that_is_too_short_is_refused() -> None:
    with pytest.raises(AnswerError, match="a Produce answer of 12 bytes"):
        produce_error(bytes(12), _TOPIC)


@pytest.mark.parametrize("aborted", [None, 0, 3])
def test_the_records_of_a_fetch_answer_are_found(aborted: int | None) -> None:
    answer = _fetch_answer(b"records", aborted=aborted)

    assert bytes(fetched_records(answer, _TOPIC)) == b"records"


def test_a_fetch_answer_without_records_has_none() -> None:
    assert bytes(fetched_records(_fetch_answer(None), _TOPIC)) == b""


def test_an_error_of_a_fetch_answer_is_told() -> None:
    answer = _fetch_answer(b"", error=ErrorCode.unknown_topic_or_partition)

    assert fetch_error(answer, _TOPIC) == i16(3)
    with pytest.raises(AnswerError, match="answered with error 3"):
        fetched_records(answer, _TOPIC)


def test_batches_are_counted_by_their_offsets() -> None:
    records = _batches(3, values_in_each=10)

    counted = count_batches(memoryview(records), 0)

    assert (counted.records, counted.size, counted.next_offset) == (30, len(records), 30)


@pytest.mark.parametrize("missing", [1, 40, 60])
def test_a_batch_that_was_cut_is_left_for_the_next_fetch(missing: int) -> None:
    records = _batches(3, values_in_each=10)

    counted = count_batches(memoryview(records)[: len(records) - missing], 0)

    assert (counted.records, counted.next_offset) == (20, 20)


def test_records_before_the_offset_asked_for_do_not_count() -> None:
    records = _batches(3, values_in_each=10)

    counted = count_batches(memoryview(records), 4)

    assert (counted.records, counted.next_offset) == (26, 30)


def test_nothing_fetched_moves_nothing() -> None:
    counted = count_batches(memoryview(b""), 17)

    assert (counted.records, counted.size, counted.next_offset) == (0, 0, 17)
