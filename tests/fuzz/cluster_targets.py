"""What controllers and leaders may answer to a broker. See `targets`."""

from __future__ import annotations

from uuid import UUID

from cordwood.cluster.control.metadata_batches import BatchQueue, split_batches
from cordwood.cluster.control.metadata_observer import MetadataObserver
from cordwood.cluster.image.image_builder import ImageBuilder
from cordwood.cluster.image.metadata_image import NO_METADATA
from cordwood.cluster.image.metadata_record import decode_record, encode_record
from cordwood.cluster.image.record_schemas import RecordType
from cordwood.errors import ClusterError, FormatError
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.replica_fetch import decode_replica_fetch
from fakes.metadata_log import FakeLeader, Value, metadata_batch
from fuzz.target import target

_TOPIC: Value = (RecordType.TOPIC, 0, {"name": "a", "topic_id": UUID(int=9)})
_PARTITION: Value = (
    RecordType.PARTITION,
    2,
    {"partition_id": 0, "topic_id": UUID(int=9), "replicas": [1], "isr": [1], "leader": 1},
)
_CHANGE: Value = (
    RecordType.PARTITION_CHANGE,
    2,
    {"partition_id": 0, "topic_id": UUID(int=9), "leader": 2, "eligible_leader_replicas": [1]},
)


def _observer() -> MetadataObserver:
    return MetadataObserver(node_id=1, cluster_id="cluster", directory_id=UUID(int=5))


def _answer_of(leader: FakeLeader) -> bytes:
    """The answer to an observer that knows the leader."""
    watcher = _observer()
    watcher.receive(watcher.request(18), leader.answer(watcher.request(18)))
    return bytes(leader.answer(watcher.request(18)))


def _leader() -> FakeLeader:
    leader = FakeLeader(epoch=0)
    leader.append(_TOPIC, _PARTITION)
    return leader


def _with_snapshot() -> FakeLeader:
    leader = _leader()
    leader.snapshot([_TOPIC], end=50, epoch=0)
    return leader


_OTHER: Value = (RecordType.TOPIC, 0, {"name": "b", "topic_id": UUID(int=10)})


@target(
    *(encode_record(*value) for value in (_OTHER, _PARTITION, _CHANGE)), refusals=(FormatError,)
)
def metadata_record(data: bytes) -> None:
    builder = ImageBuilder(NO_METADATA)
    for value in (_TOPIC, _PARTITION):
        builder.apply(decode_record(encode_record(*value)))
    builder.apply(decode_record(data))


@target(
    metadata_batch([_TOPIC, _PARTITION], offset=0, epoch=1),
    metadata_batch([_TOPIC], offset=7, epoch=1) + metadata_batch([_CHANGE], offset=8, epoch=1),
    refusals=(FormatError,),
)
def metadata_batches(data: bytes) -> None:
    batches, used = split_batches(memoryview(data))
    assert used == sum(len(batch.data) for batch in batches) <= len(data)
    queue = BatchQueue()
    for batch in batches:
        queue.append(batch)
    while len(queue):
        list(queue.take(3, start=0))


@target(_answer_of(_leader()), _answer_of(_with_snapshot()), refusals=(FormatError,))
def replica_fetch_answer(data: bytes) -> None:
    answer = decode_replica_fetch(18, memoryview(data))
    assert sum(len(part.records) for part in answer.parts) <= len(data)


@target(_answer_of(_leader()), _answer_of(_with_snapshot()), refusals=(FormatError, ClusterError))
def observed_answer(data: bytes) -> None:
    """Whatever a controller answers, the image has only committed records."""
    watcher = _observer()
    request = watcher.request(18)
    assert request.api is ApiKey.FETCH
    for _ in range(2):
        watcher.receive(request, memoryview(data))
        while watcher.has_work:
            watcher.advance(10)
        assert watcher.image.end <= watcher.high_watermark
