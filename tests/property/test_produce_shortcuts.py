"""The quick ways through a produce say what the long ways say, compiled and plain."""

import contextlib
import importlib.util
import struct
from itertools import pairwise
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError, LogError
from cordwood.format import record_scan
from cordwood.log.rules.append_checks import BatchGate, check_produced_batch
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.protocol import sole_produce
from cordwood.protocol.produce_request import decode_produce_request
from cordwood.protocol.request_header import decode_request_header, skip_header_tags
from cordwood.quantities import TimestampMs
from fakes.client_batches import NOW, client_batch, raw_batch, raw_record
from wire.raw_client import request_header
from wire.record_requests import produce_body

SOURCE = Path(__file__).parents[2] / "src" / "cordwood"
FIRST_FLEXIBLE = 9
FIRST_WITH_TOPIC_ID = 13
VERSIONS = st.integers(3, 13)


def load_plain(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location("plain_form", SOURCE / path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


plain_sole_produce = load_plain("protocol/sole_produce.py")
plain_record_scan = load_plain("format/record_scan.py")

int16s = st.integers(-(2**15), 2**15 - 1)
int32s = st.integers(-(2**31), 2**31 - 1)


# --- the frame ----------------------------------------------------------------------------------


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Produce requests for a few partitions, in any version."""
    version = draw(VERSIONS)
    topics: st.SearchStrategy[str | UUID] = st.text(max_size=5)
    if version >= FIRST_WITH_TOPIC_ID:
        topics = st.uuids()
    parts = draw(
        st.lists(
            st.tuples(topics, int32s, st.none() | st.binary(max_size=200)),
            min_size=1,
            max_size=draw(st.sampled_from([1, 1, 1, 2])),
        )
    )
    header = request_header(0, version, draw(int32s), draw(st.none() | st.text(max_size=5)))
    return header + produce_body(
        version,
        parts,
        acks=draw(int16s),
        timeout_ms=draw(int32s),
        transactional_id=draw(st.sampled_from([None, None, None, "t"])),
    )


@st.composite
def changed_frames(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(frames()))
    for _ in range(draw(st.integers(0, 3))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 5]))])


def found_by(form: Any, data: bytes, start: int = 0, end: int | None = None) -> Any:
    return form.find_sole_produce(data, start, len(data) if end is None else end)


@given(changed_frames())
def test_both_forms_find_the_same(data: bytes) -> None:
    assert found_by(sole_produce, data) == found_by(plain_sole_produce, data)


@given(changed_frames())
def test_what_is_found_is_what_the_long_way_reads(data: bytes) -> None:
    found = found_by(sole_produce, data)
    if found is None:
        return
    version, correlation_id, acks, timeout_ms, name_at, name_end, partition, at, end = found[:9]
    id_at, id_end = found[9:]
    frame = memoryview(data)

    header, position = decode_request_header(frame)
    if version >= FIRST_FLEXIBLE:
        position = skip_header_tags(frame, position)
    with contextlib.suppress(FormatError):  # a name that is not text is found later
        request = decode_produce_request(version, frame[position:])

        assert header[:3] == (0, version, correlation_id)
        id_ = None if id_at < 0 else data[id_at:id_end].decode()
        assert request[:3] == (id_, acks, timeout_ms)
        ((topic, number, records),) = request.parts
        name = topic.bytes if isinstance(topic, UUID) else topic.encode()
        assert (name, number) == (data[name_at:name_end], partition)
        assert bytes(records) == data[at:end]


@given(
    VERSIONS,
    st.text(min_size=1, max_size=20),
    st.uuids(),
    int32s,
    st.binary(min_size=1, max_size=300),
    st.none() | st.text(st.characters(codec="ascii"), max_size=20),
    st.binary(max_size=9),
)
def test_every_usual_request_is_found_wherever_it_lies(
    version: int,
    name: str,
    topic_id: UUID,
    partition: int,
    records: bytes,
    client_id: str | None,
    before: bytes,
) -> None:
    topic = topic_id if version >= FIRST_WITH_TOPIC_ID else name
    frame = request_header(0, version, 7, client_id)
    frame += produce_body(version, [(topic, partition, records)])
    data = before + frame + before

    found = found_by(sole_produce, data, len(before), len(before) + len(frame))

    assert found is not None
    assert found[:4] == (version, 7, -1, 30_000)
    expected = topic.bytes if isinstance(topic, UUID) else topic.encode()
    assert data[found[4] : found[5]] == expected
    assert found[6] == partition
    assert data[found[7] : found[8]] == records


@given(frames(), st.data())
def test_nothing_is_read_behind_the_end(data: bytes, drawn: st.DataObject) -> None:
    end = drawn.draw(st.integers(0, len(data)))

    for form in (sole_produce, plain_sole_produce):
        assert found_by(form, data, 0, end) == found_by(form, data[:end])


# --- frames of several clients ------------------------------------------------------------------


def in_a_row(received: list[bytes]) -> tuple[bytes, list[int]]:
    """Frames as they are gathered: each behind its size, and the end of each."""
    joined, ends = bytearray(), []
    for each in received:
        joined += each
        ends.append(len(joined))
    return bytes(joined), ends


def with_size(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


@st.composite
def received_frames(draw: st.DrawFn) -> list[bytes]:
    """What connections have received: mostly frames of few kinds, some of them wrong or cut."""
    few = draw(st.lists(frames(), min_size=1, max_size=3))
    whole = st.sampled_from(few).map(with_size)
    wrong = changed_frames().map(with_size) | st.binary(max_size=20)
    return draw(st.lists(whole | whole | wrong, max_size=8))


@given(received_frames())
def test_both_forms_find_the_same_among_several(received: list[bytes]) -> None:
    data, ends = in_a_row(received)

    assert sole_produce.find_sole_produces(data, ends) == plain_sole_produce.find_sole_produces(
        data, ends
    )


@given(received_frames())
def test_among_several_each_is_found_as_if_it_were_alone(received: list[bytes]) -> None:
    """Except those of transactions, which are looked at one by one."""
    data, ends = in_a_row(received)
    alone = {
        index: found_by(sole_produce, data, begin + 4, end)
        for index, (begin, end) in enumerate(pairwise([0, *ends]))
        if end - begin > 4 and int.from_bytes(data[begin : begin + 4], "big") == end - begin - 4
    }
    alone = {index: sole for index, sole in alone.items() if sole is not None and sole[9] < 0}

    runs = sole_produce.find_sole_produces(data, ends)

    found: dict[int, Any] = {}
    for version, acks, timeout_ms, name, partition, indexes, ids, spans in runs:
        if version < 0:
            assert alone.get(indexes[0]) is None
        for number, (index, correlation_id) in enumerate(zip(indexes, ids, strict=False)):
            at, stop = spans[2 * number : 2 * number + 2]
            found[index] = (version, correlation_id, acks, timeout_ms, name, partition, at, stop)
    assert found == {
        index: (*sole[:4], data[sole[4] : sole[5]], *sole[6:9])
        for index, sole in alone.items()
        if sole is not None
    }
    assert [index for run in runs for index in run[5]] == list(range(len(ends)))


def test_requests_that_differ_in_clients_and_records_make_one_run() -> None:
    received = [
        with_size(request_header(0, 9, number, client) + produce_body(9, [("t", 0, records)]))
        for number, client, records in ((1, "a", b"x"), (2, "bb", b"yy"), (3, None, b"z"))
    ]

    ((*_, indexes, ids, _spans),) = sole_produce.find_sole_produces(*in_a_row(received))

    assert (indexes, ids) == ([0, 1, 2], [1, 2, 3])


@given(received_frames(), st.data())
def test_ends_that_lie_are_not_followed(received: list[bytes], drawn: st.DataObject) -> None:
    data, ends = in_a_row(received)
    lying = [end + drawn.draw(st.integers(-9, 9)) for end in ends]

    for form in (sole_produce, plain_sole_produce):
        runs = form.find_sole_produces(data, lying)

        assert [index for run in runs for index in run[5]] == list(range(len(ends)))


# --- the batch ----------------------------------------------------------------------------------


@st.composite
def client_batches(draw: st.DrawFn) -> bytes:
    """Batches that are right, or nearly."""
    count = draw(st.integers(1, 5))
    times = draw(st.lists(st.integers(NOW - 50, NOW + 50), min_size=count, max_size=count))
    keys = draw(st.lists(st.none() | st.binary(max_size=3), min_size=count, max_size=count))
    values = draw(st.lists(st.none() | st.binary(max_size=9), min_size=count, max_size=count))
    producer_id = draw(st.sampled_from([-1, -1, 7]))
    return bytes(
        client_batch(
            *values,
            keys=keys,
            timestamps=times,
            producer_id=producer_id,
            sequence=draw(st.sampled_from([-1, 0, 5])),
        )
    )


@st.composite
def raw_batches(draw: st.DrawFn) -> bytes:
    """Batches whose numbers need not fit, behind a checksum that does."""
    records = draw(
        st.lists(
            st.builds(
                raw_record,
                st.none() | st.binary(max_size=5),
                key=st.none() | st.binary(max_size=3),
                headers=st.lists(st.tuples(st.just(b"h"), st.none() | st.binary(max_size=2))),
                offset_delta=st.integers(-1, 4),
                timestamp_delta=st.integers(-3, 3),
                size=st.none() | st.integers(-1, 40),
            ),
            max_size=4,
        )
    )
    return bytes(
        raw_batch(
            b"".join(records) + draw(st.sampled_from([b"", b"", b"x"])),
            count=draw(st.just(len(records)) | st.integers(-1, 5)),
            last_offset_delta=draw(st.none() | st.integers(-1, 5)),
            base_offset=draw(st.sampled_from([0, 0, 1])),
            attributes=draw(st.sampled_from([0, 0, 0, 0x08, 0x10, 0x20, 0x40, 1])),
            base_timestamp=draw(st.integers(-2, 2) | st.just(NOW)),
            max_timestamp=draw(st.integers(-2, 5) | st.just(NOW)),
            producer_id=draw(st.sampled_from([-2, -1, -1, 7])),
            producer_epoch=draw(st.sampled_from([-1, 0])),
            base_sequence=draw(st.sampled_from([-1, 0])),
            magic=draw(st.sampled_from([2, 2, 2, 1])),
        )
    )


any_batches = client_batches() | raw_batches()
configs = st.sampled_from(
    [
        TopicConfig(),
        TopicConfig.parse({"cleanup.policy": "compact"}),
        TopicConfig.parse({"message.timestamp.after.max.ms": 10}),
        TopicConfig.parse({"message.timestamp.before.max.ms": 10}),
        TopicConfig.parse({"max.message.bytes": 90}),
    ]
)


@given(any_batches)
def test_both_forms_say_the_same_of_a_batch(data: bytes) -> None:
    of_both = [
        form.survey_produced(data, 0, len(data), 0, NOW + 20, False)
        for form in (record_scan, plain_record_scan)
    ]

    assert of_both[0] == of_both[1]


@given(st.lists(any_batches, max_size=6), st.sampled_from([90, 1000]), st.booleans())
def test_batches_are_surveyed_together_as_each_alone(
    received: list[bytes], size_max: int, needs_keys: bool
) -> None:
    data, ends = in_a_row(received)
    spans = [at for pair in pairwise([0, *ends]) for at in pair]
    alone = [
        record_scan.survey_produced(each, 0, len(each), 0, NOW + 20, needs_keys)
        if len(each) <= size_max
        else None
        for each in received
    ]

    for form in (record_scan, plain_record_scan):
        surveyed = form.survey_all_produced(data, spans, size_max, 0, NOW + 20, needs_keys)

        if None in alone:
            assert surveyed is None
        else:
            is_numbered = any(batch.producer_id != -1 for batch in alone if batch is not None)
            assert surveyed == (alone, data, is_numbered)


def by_the_long_way(data: bytes, config: TopicConfig) -> Any:
    """What is said without the shortcut: the checked batch, or the error."""
    with mock.patch.object(BatchGate, "survey", return_value=None):
        try:
            return check_produced_batch(bytearray(data), config, now_ms=TimestampMs(NOW))
        except (FormatError, LogError) as error:
            return error


@given(any_batches, configs)
def test_a_batch_that_passes_at_a_glance_passes_unchanged_the_long_way(
    data: bytes, config: TopicConfig
) -> None:
    survey = BatchGate(config).survey(memoryview(data), TimestampMs(NOW))
    if survey is None:
        return

    checked = by_the_long_way(data, config)

    assert not isinstance(checked, Exception), checked
    assert bytes(checked.data) == data
    header = checked.header
    assert (survey.record_count, survey.max_timestamp) == (
        header.record_count,
        header.max_timestamp,
    )
    assert (survey.producer_id, survey.producer_epoch, survey.base_sequence) == (
        header.producer_id,
        header.producer_epoch,
        header.base_sequence,
    )


@given(client_batches())
def test_a_batch_that_the_long_way_leaves_as_it_is_passes_at_a_glance(data: bytes) -> None:
    """Otherwise the shortcut would be right and of no use."""
    checked = by_the_long_way(data, TopicConfig())
    if isinstance(checked, Exception):
        return

    assert BatchGate(TopicConfig()).survey(memoryview(data), TimestampMs(NOW)) is not None


@pytest.mark.parametrize("position", range(61))
def test_a_changed_byte_of_the_header_never_passes(position: int) -> None:
    data = bytearray(client_batch(b"one", b"two"))
    if position in range(12, 16):
        return  # the leader epoch is the broker's to set
    data[position] ^= 0x01

    assert BatchGate(TopicConfig()).survey(memoryview(data), TimestampMs(NOW)) is None


def test_a_size_that_lies_is_not_followed() -> None:
    data = bytearray(client_batch(b"one"))
    for size in (-1, 0, 48, 10_000, 2**31 - 1):
        struct.pack_into(">i", data, 8, size)
        for form in (record_scan, plain_record_scan):
            assert form.survey_produced(bytes(data), 0, len(data), 0, NOW, False) is None
