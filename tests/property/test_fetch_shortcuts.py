"""The quick ways through a fetch say what the long ways say, compiled and plain."""

import contextlib
import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from cordwood.errors import FormatError
from cordwood.protocol import sole_fetch
from cordwood.protocol.fetch_request import decode_fetch_request
from cordwood.protocol.fetch_response import (
    FetchedPart,
    SoleFetchResponse,
    encode_fetch_response,
)
from cordwood.protocol.request_header import decode_request_header, skip_header_tags
from wire.raw_client import request_header
from wire.record_requests import Wanted, fetch_body

SOURCE = Path(__file__).parents[2] / "src" / "cordwood"
FETCH = 1
FIRST_FLEXIBLE = 12
FIRST_WITH_TOPIC_ID = 13
VERSIONS = st.integers(4, 18)

int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)


def load_plain() -> ModuleType:
    path = SOURCE / "protocol" / "sole_fetch.py"
    spec = importlib.util.spec_from_file_location("plain_form", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert not module.COMPILED
    return module


plain_sole_fetch = load_plain()


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    """Fetch requests for a few partitions, in any version."""
    version = draw(VERSIONS)
    topics: st.SearchStrategy[str | UUID] = st.text(max_size=5)
    if version >= FIRST_WITH_TOPIC_ID:
        topics = st.uuids()
    wanted = draw(
        st.lists(
            st.builds(
                Wanted,
                topic=topics,
                partition=int32s,
                offset=int64s,
                max_bytes=int32s,
                leader_epoch=int32s if version >= 9 else st.just(-1),
                last_fetched_epoch=int32s if version >= 12 else st.just(-1),
            ),
            min_size=draw(st.sampled_from([0, 1, 1, 1])),
            max_size=draw(st.sampled_from([1, 1, 1, 2])),
        )
    )
    has_session = version >= 7 and draw(st.sampled_from([False, False, True]))
    body = fetch_body(
        version,
        wanted,
        max_wait_ms=draw(int32s),
        min_bytes=draw(int32s),
        max_bytes=draw(int32s),
        isolation_level=draw(st.integers(0, 1)),
        session_id=draw(int32s) if has_session else 0,
        session_epoch=draw(int32s) if has_session else -1,
    )
    return (
        request_header(FETCH, version, draw(int32s), draw(st.none() | st.text(max_size=5))) + body
    )


@st.composite
def changed_frames(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(frames()))
    for _ in range(draw(st.integers(0, 2))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: len(data) - draw(st.sampled_from([0, 0, 0, 1, 5]))])


def found_by(form: Any, data: bytes, start: int = 0, end: int | None = None) -> Any:
    return form.find_sole_fetch(data, start, len(data) if end is None else end)


@given(changed_frames())
def test_both_forms_find_the_same(data: bytes) -> None:
    assert found_by(sole_fetch, data) == found_by(plain_sole_fetch, data)


@given(changed_frames())
def test_what_is_found_is_what_the_long_way_reads(data: bytes) -> None:
    found = found_by(sole_fetch, data)
    if found is None:
        return
    version, correlation_id, *limits = found[:6]
    name_at, name_end, partition, leader_epoch, offset, last_epoch, bytes_max = found[6:]
    frame = memoryview(data)

    header, position = decode_request_header(frame)
    if version >= FIRST_FLEXIBLE:
        position = skip_header_tags(frame, position)
    with contextlib.suppress(FormatError):  # a name that is not text is found later
        request = decode_fetch_request(version, frame[position:])

        assert header[:3] == (FETCH, version, correlation_id)
        assert request[:5] == (-1, *limits)
        assert (request.session_id, request.session_epoch) == (0, -1)
        assert (request.forgotten, request.rack_id) == ([], "")
        (part,) = request.parts
        name = part.topic.bytes if isinstance(part.topic, UUID) else part.topic.encode()
        assert (name, part.partition) == (data[name_at:name_end], partition)
        assert (part.offset, part.max_bytes) == (offset, bytes_max)
        assert (part.leader_epoch, part.last_fetched_epoch) == (leader_epoch, last_epoch)


@given(VERSIONS, st.text(min_size=1, max_size=20), st.uuids(), st.binary(max_size=9))
def test_every_usual_request_is_found_wherever_it_lies(
    version: int, name: str, topic_id: UUID, before: bytes
) -> None:
    topic = topic_id if version >= FIRST_WITH_TOPIC_ID else name
    wanted = Wanted(topic=topic, partition=3, offset=2**40, max_bytes=1000)
    frame = request_header(FETCH, version, 7) + fetch_body(
        version, [wanted], max_wait_ms=500, isolation_level=1
    )
    data = before + frame + before

    found = found_by(sole_fetch, data, len(before), len(before) + len(frame))

    assert found is not None
    assert found[:6] == (version, 7, 500, 1, 50 << 20, 1)
    expected = topic.bytes if isinstance(topic, UUID) else topic.encode()
    assert data[found[6] : found[7]] == expected
    assert found[8:] == (3, -1, 2**40, -1, 1000)


@given(frames(), st.data())
def test_nothing_is_read_behind_the_end(data: bytes, drawn: st.DataObject) -> None:
    end = drawn.draw(st.integers(0, len(data)))

    for form in (sole_fetch, plain_sole_fetch):
        assert found_by(form, data, 0, end) == found_by(form, data[:end])


@given(
    VERSIONS,
    st.text(min_size=1, max_size=20),
    st.uuids(),
    st.integers(0, 2**31 - 1),
    int32s,
    st.integers(0, 2**62),
    st.integers(0, 2**62),
    st.binary(min_size=1, max_size=400),
    st.booleans(),
)
def test_an_answer_with_records_is_the_same_from_its_form(
    version: int,
    name: str,
    topic_id: UUID,
    partition: int,
    correlation_id: int,
    high_watermark: int,
    log_start: int,
    records: bytes,
    is_committed: bool,
) -> None:
    topic = topic_id if version >= FIRST_WITH_TOPIC_ID else name
    part = FetchedPart(
        topic,
        partition,
        high_watermark=high_watermark,
        last_stable_offset=high_watermark,
        log_start_offset=log_start,
        aborted=() if is_committed else None,
        size=len(records),
        records=records,
    )
    form = SoleFetchResponse(version, topic, partition, is_committed=is_committed)

    encoded = form.encode(correlation_id, high_watermark, log_start, bytearray(records))

    assert encoded == b"".join(encode_fetch_response(version, correlation_id, [part]))
