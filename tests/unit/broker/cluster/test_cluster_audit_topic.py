"""Audit lines of a member, on their way to the leaders of their topic."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from uuid import UUID

import pytest

from cordwood.broker.cluster.cluster_audit_topic import ClusterAuditTopic, ClusterWays
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer, OutboundCall
from cordwood.broker.security.audit_topic import is_audit_client
from cordwood.cluster.image.metadata_image import MetadataImage, TopicImage
from cordwood.errors import BrokerUnreachableError, StorageError
from cordwood.format.batch import decode_batch
from cordwood.log.topics.topic import partition_for
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.produce_request import decode_produce_request
from cordwood.protocol.produce_response import ProducedPart, encode_produce_response
from fakes.manual_clock import ManualClock
from fakes.replication_bench import partition

VERSION = 9
_HEADER_BYTES = 9  # size, correlation id and tags
ID = UUID(int=4)


class AtOnce:
    """A loop that calls at once, in the thread that asks."""

    def call_soon(self, function: Callable[[], None]) -> None:
        function()


class Leaders:
    """All leaders of a topic with two partitions; the ways of a member to them."""

    def __init__(self, *, exists: bool = True) -> None:
        self.ordered: list[str] = []
        self.taken: dict[int, list[str]] = {}
        self.refusals: list[int | None] = []  # of the next requests; None: no answer at all
        self.asked: list[int] = []
        topic = TopicImage(
            name="audit", topic_id=ID, partitions={0: partition(1, 1), 1: partition(2, 1)}
        )
        self._with = MetadataImage(topics={ID: topic}, topic_ids={"audit": ID})
        self.image = self._with if exists else MetadataImage()
        self.ways = ClusterWays(
            loop=AtOnce(),  # type: ignore[arg-type]  # only this is called
            peers=self,
            image=lambda: self.image,
            order=self.order,
        )

    def order(self, names: Sequence[str]) -> None:
        self.ordered += names
        self.image = self._with

    def close(self) -> None:
        return

    def send(self, node_id: int, call: OutboundCall) -> None:
        self.asked.append(node_id)
        code = self.refusals.pop(0) if self.refusals else 0
        if code is None:
            call.when_done(BrokerUnreachableError(f"broker {node_id}", "it is gone"))
            return
        request = decode_produce_request(VERSION, memoryview(call.encode(VERSION)))
        assert request.acks == -1
        for part in request.parts:
            if not code:
                lines = [(record.value or b"").decode() for record in decode_batch(part.records)]
                self.taken.setdefault(part.partition, []).extend(lines)
        parts = [
            ProducedPart("audit", part.partition, ErrorCode(code), base_offset=0)
            for part in request.parts
        ]
        frame = encode_produce_response(VERSION, 0, parts)
        call.when_done(OutboundAnswer(VERSION, memoryview(frame)[_HEADER_BYTES:]))


def line(principal: str, number: int = 0) -> str:
    return json.dumps({"principal": principal, "number": number})


def opened(leaders: Leaders, *, patience_s: float = 5) -> ClusterAuditTopic:
    topic = ClusterAuditTopic("audit", ManualClock(), patience_s=patience_s)
    topic.serve(leaders.ways)
    return topic


LINES = [line(f"User:{name}", number) for number, name in enumerate("abcdefgh")]


def test_each_line_goes_to_the_leader_of_the_partition_of_its_principal() -> None:
    leaders = Leaders()

    opened(leaders).write(LINES)

    wanted: dict[int, list[str]] = {}
    for each in LINES:
        key = json.loads(each)["principal"].encode()
        wanted.setdefault(partition_for(key, 2), []).append(each)
    assert leaders.taken == wanted
    assert sorted(leaders.asked) == [1, 2]


def test_a_missing_topic_is_created_first() -> None:
    leaders = Leaders(exists=False)

    opened(leaders).write(LINES)

    assert leaders.ordered == ["audit"]
    assert sum(map(len, leaders.taken.values())) == len(LINES)


def test_lines_that_were_refused_or_lost_are_sent_again() -> None:
    leaders = Leaders()
    leaders.refusals = [ErrorCode.not_leader_or_follower, None, None]

    opened(leaders).write(LINES)

    assert sum(map(len, leaders.taken.values())) == len(LINES)
    assert len(leaders.asked) > 3


def test_lines_that_nobody_takes_are_an_error_with_the_reason() -> None:
    leaders = Leaders()
    leaders.refusals = [ErrorCode.not_enough_replicas] * 100

    with pytest.raises(StorageError, match="not_enough_replicas"):
        opened(leaders, patience_s=0.3).write(LINES)


def test_before_the_cluster_is_joined_lines_are_an_error() -> None:
    with pytest.raises(StorageError, match="was not joined"):
        ClusterAuditTopic("audit", ManualClock()).write(LINES)


@pytest.mark.parametrize(
    ("client_id", "is_one"),
    [("broker-1-audit", True), ("broker-1-fetcher", False), ("audit", False), (None, False)],
)
def test_a_broker_that_writes_lines_is_known_by_its_client_id(
    client_id: str | None, is_one: bool
) -> None:
    assert is_audit_client(client_id) is is_one
