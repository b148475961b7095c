"""What lies in a store's inbox, as functions of bytes: any process may have put it there."""

from __future__ import annotations

import uuid
from typing import Final

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
from cordwood.log.inbox.topic_change import (
    AlterTopic,
    CreateTopic,
    DeleteTopic,
    ForgetGroup,
    TrimTopic,
)
from cordwood.log.inbox.upkeep_change import (
    ArchiveTopics,
    CompactTopic,
    RestoreTopic,
    RollTopic,
    SnapshotStore,
)
from cordwood.log.publishing.publication import PublicationId
from cordwood.quantities import Offset, ProducerId, TimestampMs
from fuzz.target import target

_ID: Final = uuid.UUID(int=2**100 + 7)

_CHANGES: Final[tuple[StoreChange, ...]] = (
    PublishBatches(
        publication=PublicationId(application="etl", number=3),
        files=(StagedBatches(staging_id="0" * 32, name="rows", size=10),),
        topics={"orders": 2},
    ),
    SwapSegments(
        topic="orders",
        topic_id=_ID,
        partition=0,
        planned_on=(SegmentPlace(base_offset=Offset(0), next_offset=Offset(5), size=100),),
        files=(StagedSegment(name="new", base_offset=Offset(0), size=50),),
        cleaned_up_to=Offset(5),
        aborted=(
            AbortedTransaction(
                producer_id=ProducerId(1),
                first_offset=Offset(0),
                last_offset=Offset(1),
                last_stable_offset=Offset(2),
            ),
        ),
    ),
    CommitGroup(group="billing", offsets={("orders", 0): (7, "note")}),
    CreateTopic(topic="orders", partitions=3, config={"retention.ms": "7d"}),
    AlterTopic(topic="orders", config={"retention.ms": None}),
    DeleteTopic(topic="orders", topic_id=_ID),
    TrimTopic(topic="orders", topic_id=_ID, before={0: Offset(5)}),
    ForgetGroup(group="billing", places=(("orders", 0),)),
    RollTopic(topic="orders", topic_id=_ID, partitions=(0, 2)),
    CompactTopic(topic="orders", topic_id=_ID, force=False),
    ArchiveTopics(topics=("orders",)),
    SnapshotStore(path="/srv/copy"),
    SnapshotStore(path="/srv/copy", include_security=True),
    RestoreTopic(
        topic="orders",
        url="file:///srv/archive",
        to_timestamp_ms=5,
        archived_id=_ID,
        new_name="orders-then",
        config={"retention.ms": "1d"},
    ),
)


@target(
    *(
        render_request(
            ChangeRequest(change=change, submitted_ms=TimestampMs(0), deadline_ms=TimestampMs(5))
        )
        for change in _CHANGES
    )
)
def change_request(data: bytes) -> None:
    request = parse_request(data)
    assert parse_request(render_request(request)) == request


@target(
    render_answer(ChangeAnswer(outcome="done", facts={"partitions": [{"bytes": 5}]})),
    render_answer(ChangeAnswer(outcome="refused", reason="LogError: no")),
)
def change_answer(data: bytes) -> None:
    answer = parse_answer(data)
    assert parse_answer(render_answer(answer)) == answer
