"""Produce and Fetch as kafka-python writes and reads them: requests for a `RawClient`."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka.protocol.consumer import FetchRequest, FetchResponse
from kafka.protocol.producer import ProduceRequest, ProduceResponse

from cordwood.format.batch import BatchDecoder
from cordwood.protocol.api_catalog import ApiKey
from wire.raw_client import RawClient

NO_SESSION = 0
SESSIONLESS_EPOCH = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """What a fetch asks of a partition."""

    topic: str | UUID
    partition: int = 0
    offset: int = 0
    max_bytes: int = 1 << 20
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


def produce_body(
    version: int,
    parts: Sequence[tuple[str | UUID, int, bytes | None]],
    *,
    acks: int = -1,
    timeout_ms: int = 30_000,
    transactional_id: str | None = None,
) -> bytes:
    """Each part is a topic, a partition and a record batch."""
    topics = [
        ProduceRequest.TopicProduceData(
            version=version,
            **_topic("name", topic),
            partition_data=[
                ProduceRequest.TopicProduceData.PartitionProduceData(
                    version=version, index=partition, records=records
                )
            ],
        )
        for topic, partition, records in parts
    ]
    request = ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=topics,
    )
    return bytes(request.encode())


def fetch_body(
    version: int,
    wanted: Sequence[Wanted],
    *,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 50 << 20,
    session_id: int = NO_SESSION,
    session_epoch: int = SESSIONLESS_EPOCH,
    forgotten: Sequence[tuple[str | UUID, int]] = (),
    isolation_level: int = 0,
) -> bytes:
    topics = [
        FetchRequest.FetchTopic(
            version=version,
            **_topic("topic", part.topic),
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
        for part in wanted
    ]
    request = FetchRequest(
        version=version,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=topics,
        forgotten_topics_data=[
            FetchRequest.ForgottenTopic(
                version=version, **_topic("topic", topic), partitions=[partition]
            )
            for topic, partition in forgotten
        ],
        rack_id="",
    )
    return bytes(request.encode())


def _topic(name: str, topic: str | UUID) -> dict[str, Any]:
    return {name: topic} if isinstance(topic, str) else {"topic_id": topic}


def receive_produced(client: RawClient, version: int) -> Any:
    """The answer to a produce, as kafka-python reads it."""
    _, body = client.receive(ApiKey.PRODUCE, version)
    return ProduceResponse.decode(body, version=version)


def produce(
    client: RawClient,
    topic: str | UUID,
    records: bytes | None,
    *,
    partition: int = 0,
    version: int = 9,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> Any:
    """Append one batch; return what the answer says about its partition."""
    body = produce_body(version, [(topic, partition, records)], acks=acks, timeout_ms=timeout_ms)
    client.send(ApiKey.PRODUCE, version, body)
    return receive_produced(client, version).responses[0].partition_responses[0]


def fetch(client: RawClient, wanted: Sequence[Wanted], *, version: int = 12, **options: Any) -> Any:
    """One fetch and its answer, as kafka-python reads it."""
    client.send(ApiKey.FETCH, version, fetch_body(version, wanted, **options))
    return receive_fetched(client, version)


def receive_fetched(client: RawClient, version: int = 12) -> Any:
    _, body = client.receive(ApiKey.FETCH, version)
    return FetchResponse.decode(body, version=version)


def only_part(response: Any) -> Any:
    """The one partition of an answer that has one."""
    assert response.error_code == 0, response
    (topic,) = response.responses
    (part,) = topic.partitions
    return part


def batches_of(part: Any) -> list[tuple[int, int]]:
    """The base offset and record count of each whole batch."""
    data = bytes(part.records or b"")
    decoder = BatchDecoder(batches_max=1000)
    count = decoder.scan(memoryview(data), 0, len(data))
    assert decoder.sound_count() == count
    return [(batch.base_offset, batch.record_count) for batch in map(decoder.batch, range(count))]
