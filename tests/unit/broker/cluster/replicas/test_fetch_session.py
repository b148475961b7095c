"""Fetch sessions of followers: our own leader's side is the judge of what they send."""

from uuid import UUID

from cordwood.broker.cluster.replicas.fetch_session import FollowerSession
from cordwood.broker.records.fetch_sessions import FetchSessions
from cordwood.cluster.replication.replica_fetch import FetchPosition, PartitionPlace, ReplicaFetch
from cordwood.protocol.fetch_request import FetchPartition, decode_fetch_request
from cordwood.quantities import LeaderEpoch, Offset

FIRST, SECOND = UUID(int=1), UUID(int=2)
VERSION = 18


def position(topic: UUID, partition: int, offset: int, high_watermark: int = 0) -> FetchPosition:
    return FetchPosition(
        place=PartitionPlace(topic, partition),
        leader_epoch=LeaderEpoch(3),
        offset=Offset(offset),
        last_epoch=LeaderEpoch(2),
        log_start=Offset(0),
        high_watermark=Offset(high_watermark),
    )


def fetch(*positions: FetchPosition) -> ReplicaFetch:
    return ReplicaFetch(
        replica=7,
        broker_epoch=55,
        positions=positions,
        wait_max_ms=500,
        bytes_min=1,
        bytes_max=10_000,
        partition_bytes_max=1_000,
    )


class Leader:
    """The leader's side of the session."""

    def __init__(self) -> None:
        self._sessions = FetchSessions(10, lambda: 0.0)

    def take(self, body: bytes) -> tuple[list[FetchPartition], list[FetchPartition], int, int]:
        """What was in the request, what the session asks for, its id, and an error."""
        request = decode_fetch_request(VERSION, memoryview(body))
        assert (request.replica_id, request.replica_epoch) == (7, 55)
        use = self._sessions.use(request, by_topic_id=True)
        return request.parts, use.parts, use.session_id, use.error_code


def places(parts: list[FetchPartition]) -> list[tuple[object, int, int]]:
    return [(part.topic, part.partition, part.offset) for part in parts]


def test_after_the_first_request_only_changes_are_sent() -> None:
    session, leader = FollowerSession(), Leader()
    sent, asked, session_id, _ = leader.take(
        session.encode(fetch(position(FIRST, 0, 5), position(SECOND, 0, 6)), VERSION).body
    )
    assert len(sent) == len(asked) == 2
    session.answered(session_id)

    sent, asked, _, error = leader.take(
        session.encode(fetch(position(FIRST, 0, 9), position(SECOND, 0, 6)), VERSION).body
    )

    assert not error
    assert places(sent) == [(FIRST, 0, 9)]
    assert sorted(places(asked), key=str) == sorted([(FIRST, 0, 9), (SECOND, 0, 6)], key=str)


def test_partitions_that_are_not_ready_leave_the_session() -> None:
    session, leader = FollowerSession(), Leader()
    *_, session_id, _ = leader.take(
        session.encode(fetch(position(FIRST, 0, 5), position(FIRST, 1, 6)), VERSION).body
    )
    session.answered(session_id)

    _, asked, session_id, error = leader.take(
        session.encode(fetch(position(FIRST, 1, 6)), VERSION).body
    )
    session.answered(session_id)
    _, back, _, again = leader.take(
        session.encode(fetch(position(FIRST, 0, 5), position(FIRST, 1, 6)), VERSION).body
    )

    assert not error
    assert not again
    assert places(asked) == [(FIRST, 1, 6)]
    assert sorted(places(back), key=str) == [(FIRST, 0, 5), (FIRST, 1, 6)]


def test_a_session_begins_anew_after_a_failure() -> None:
    session, leader = FollowerSession(), Leader()
    *_, session_id, _ = leader.take(session.encode(fetch(position(FIRST, 0, 5)), VERSION).body)
    session.answered(session_id)

    session.restart()
    request = session.encode(fetch(position(FIRST, 0, 5)), VERSION)
    sent, _, other_id, error = leader.take(request.body)

    assert request.is_full
    assert places(sent) == [(FIRST, 0, 5)]
    assert not error
    assert other_id != session_id


def test_a_follower_tells_its_high_watermark_and_its_epochs() -> None:
    [sent], *_ = Leader().take(
        FollowerSession().encode(fetch(position(FIRST, 3, 8, high_watermark=6)), VERSION).body
    )

    assert (sent.high_watermark, sent.leader_epoch, sent.last_fetched_epoch) == (6, 3, 2)
    assert (sent.log_start, sent.max_bytes) == (0, 1_000)
