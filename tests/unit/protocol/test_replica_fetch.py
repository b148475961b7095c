"""Fetch between replicas, by hand, with kio as the judge of every byte."""

from __future__ import annotations

import importlib
import io
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode
from kio.serial import entity_reader, entity_writer

from cordwood.errors import FormatError
from cordwood.protocol.replica_fetch import (
    UNKNOWN_HIGH_WATERMARK,
    VERSION_MAX,
    VERSION_MIN,
    CurrentLeader,
    EpochEnd,
    NodeEndpoint,
    ReplicaFetched,
    ReplicaFetchPart,
    SnapshotId,
    decode_replica_fetch,
    encode_replica_fetch,
)

VERSIONS = range(VERSION_MIN, VERSION_MAX + 1)
every_version = pytest.mark.parametrize("version", VERSIONS)
int32s = st.integers(-(2**31), 2**31 - 1)
int64s = st.integers(-(2**63), 2**63 - 1)
uuids = st.uuids()
parts_asked = st.lists(
    st.builds(
        ReplicaFetchPart,
        uuids,
        int32s,
        int64s,
        int32s,
        int32s,
        int32s,
        int64s,
        uuids | st.just(UUID(int=0)),
        int64s | st.just(UNKNOWN_HIGH_WATERMARK),
    ),
    max_size=5,
)


def kio_request(version: int) -> Any:
    return importlib.import_module(f"kio.schema.fetch.v{version}.request")


def kio_response(version: int) -> Any:
    return importlib.import_module(f"kio.schema.fetch.v{version}.response")


@every_version
@given(
    parts=parts_asked,
    replica=st.tuples(int32s, int64s),
    cluster_id=st.none() | st.text(min_size=1, max_size=8),
    forgotten=st.lists(st.tuples(uuids, int32s), max_size=3),
    session=st.tuples(int32s, int32s),
)
def test_kio_reads_what_a_replica_sends(
    version: int,
    parts: list[ReplicaFetchPart],
    replica: tuple[int, int],
    cluster_id: str | None,
    forgotten: list[tuple[UUID, int]],
    session: tuple[int, int],
) -> None:
    body = encode_replica_fetch(
        version,
        parts,
        replica_id=replica[0],
        replica_epoch=replica[1],
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=1000,
        cluster_id=cluster_id,
        session_id=session[0],
        session_epoch=session[1],
        forgotten=forgotten,
    )

    read, size = entity_reader(kio_request(version).FetchRequest)(body, 0)

    assert size == len(body)
    assert read.cluster_id == cluster_id
    assert (read.replica_state.replica_id, read.replica_state.replica_epoch) == replica
    assert (read.session_id, read.session_epoch) == session
    assert [
        (topic.topic_id, number)
        for topic in read.forgotten_topics_data
        for number in topic.partitions
    ] == [(None if topic.int == 0 else topic, number) for topic, number in forgotten]
    found = [(topic.topic_id, part) for topic in read.topics for part in topic.partitions]
    assert len(found) == len(parts)
    for (topic_id, theirs), ours in zip(found, parts, strict=True):
        assert topic_id == (None if ours.topic_id.int == 0 else ours.topic_id)
        assert theirs.partition == ours.partition
        assert theirs.fetch_offset == ours.offset
        assert theirs.current_leader_epoch == ours.leader_epoch
        assert theirs.last_fetched_epoch == ours.last_fetched_epoch
        assert theirs.log_start_offset == ours.log_start_offset
        assert theirs.partition_max_bytes == ours.max_bytes
        assert (theirs.replica_directory_id or UUID(int=0)) == ours.directory_id
        if version >= 18:
            assert theirs.high_watermark == ours.high_watermark


@every_version
@given(
    records=st.binary(max_size=40),
    epochs=st.none() | st.tuples(int32s, int64s),
    leader=st.none() | st.tuples(int32s, int32s),
    snapshot=st.none() | st.tuples(int64s, int32s),
    marks=st.tuples(int64s, int64s, int64s),
    aborted=st.none() | st.lists(st.tuples(int64s, int64s), max_size=2),
)
def test_what_kio_writes_is_read(
    version: int,
    records: bytes,
    epochs: tuple[int, int] | None,
    leader: tuple[int, int] | None,
    snapshot: tuple[int, int] | None,
    marks: tuple[int, int, int],
    aborted: list[tuple[int, int]] | None,
) -> None:
    kio = kio_response(version)
    tags: dict[str, Any] = {}
    if epochs is not None:
        tags["diverging_epoch"] = kio.EpochEndOffset(epoch=epochs[0], end_offset=epochs[1])
    if leader is not None:
        tags["current_leader"] = kio.LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    if snapshot is not None:
        tags["snapshot_id"] = kio.SnapshotId(end_offset=snapshot[0], epoch=snapshot[1])
    part = kio.PartitionData(
        partition_index=3,
        error_code=KioErrorCode.none,
        high_watermark=marks[0],
        last_stable_offset=marks[1],
        log_start_offset=marks[2],
        aborted_transactions=None
        if aborted is None
        else tuple(
            kio.AbortedTransaction(producer_id=one, first_offset=two) for one, two in aborted
        ),
        records=records,
        **tags,
    )
    topic = kio.FetchableTopicResponse(topic_id=UUID(int=7), partitions=(part, part))
    endpoint = kio.NodeEndpoint(node_id=5, host="h", port=9, rack="r")
    response = kio.FetchResponse(
        throttle_time=timedelta(milliseconds=4),
        error_code=KioErrorCode.none,
        session_id=6,
        responses=(topic,),
        node_endpoints=(endpoint,),
    )
    out = io.BytesIO()
    entity_writer(kio.FetchResponse)(out, response)

    read = decode_replica_fetch(version, memoryview(out.getvalue()))

    assert (read.error_code, read.session_id, read.throttle_ms) == (0, 6, 4)
    assert read.endpoints == [NodeEndpoint(5, "h", 9)]
    expected = ReplicaFetched(
        UUID(int=7),
        3,
        0,
        marks[0],
        marks[2],
        memoryview(records),
        None if epochs in (None, (-1, -1)) else EpochEnd(*epochs),
        None if leader in (None, (-1, -1)) else CurrentLeader(*leader),
        None if snapshot in (None, (-1, -1)) else SnapshotId(*snapshot),
    )
    assert read.parts == [expected, expected]


@given(data=st.binary(max_size=120))
def test_any_bytes_are_an_answer_or_a_format_error(data: bytes) -> None:
    try:
        decode_replica_fetch(18, memoryview(data))
    except FormatError:
        return
