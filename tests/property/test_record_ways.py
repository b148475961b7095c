"""The short ways of produce and fetch answer with the same bytes as the long ways.

Two brokers get the same bytes. One has short ways, the other has none. Their clients get the same
answers, and their logs hold the same bytes.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.format.compression import Codec
from cordwood.protocol.api_catalog import ApiKey
from fakes.client_batches import NOW, client_batch
from fakes.record_bench import RecordBench
from wire.raw_client import framed, request_header
from wire.record_requests import Wanted, fetch_body, produce_body

FIRST_WITH_TOPIC_ID = 13
TOPICS: dict[str, dict[str, object]] = {
    "t": {},
    "keyed": {"cleanup.policy": "compact"},
    "small": {"max.message.bytes": 200},
    "tight": {"internal.segment.bytes": 1024},
}
CLIENTS = 5


@dataclass(frozen=True)
class Brokers:
    short: RecordBench
    long: RecordBench

    def connect(self) -> None:
        """New clients: a request that cannot be read costs its client the connection."""
        for bench in (self.short, self.long):
            bench.disconnect()
            bench.connect(CLIENTS)


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """With short ways, and without. Examples follow each other on the same logs."""
    path = tmp_path_factory.mktemp("ways")
    short = RecordBench(path / "short", TOPICS)
    long = RecordBench(path / "long", TOPICS, has_short_ways=False)
    yield Brokers(short, long)
    short.close()
    long.close()


def named(bench: RecordBench, topic: str, version: int) -> Any:
    """The topic as a request of that version names it."""
    if version < FIRST_WITH_TOPIC_ID:
        return topic
    return bench.store.topic(topic).topic_id


def without_ids(bench: RecordBench, answers: list[bytes]) -> list[bytes]:
    for number, topic in enumerate(TOPICS):
        topic_id = bench.store.topic(topic).topic_id.bytes
        answers = [answer.replace(topic_id, bytes([number]) * 16) for answer in answers]
    return answers


# --- produce ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Produced:
    """A request of one client, and where one of its bytes is wrong."""

    client: int
    version: int
    topic: str
    partition: int
    batch: bytes
    acks: int
    changed_at: int | None

    def frame(self, bench: RecordBench) -> bytes:
        topic = named(bench, self.topic, self.version)
        body = produce_body(
            self.version, [(topic, self.partition, self.batch)], acks=self.acks, timeout_ms=5000
        )
        data = bytearray(request_header(ApiKey.PRODUCE, self.version, 7) + body)
        if self.changed_at is not None:
            at = self.changed_at % len(data)
            if isinstance(topic, UUID):  # each broker has its own, and repeats a wrong one
                id_at = data.index(topic.bytes)
                at += 16 if id_at <= at < id_at + 16 else 0
            data[at] ^= 0x10
        return framed(bytes(data))


@st.composite
def batches(draw: st.DrawFn) -> bytes:
    count = draw(st.integers(1, 3))
    producer_id = draw(st.sampled_from([-1, -1, -1, 7]))
    return bytes(
        client_batch(
            *(b"v" * draw(st.sampled_from([0, 5, 60, 300])) for _ in range(count)),
            keys=[draw(st.sampled_from([None, b"k"])) for _ in range(count)],
            timestamps=[NOW + draw(st.sampled_from([0, -1000, 7_200_000])) for _ in range(count)],
            codec=draw(st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.GZIP])),
            producer_id=producer_id,
            producer_epoch=-1 if producer_id < 0 else draw(st.sampled_from([0, 0, 1])),
            sequence=-1 if producer_id < 0 else draw(st.integers(0, 4)),
            attributes=draw(st.sampled_from([0, 0, 0, 0x08])),
        )
    )


produced = st.builds(
    Produced,
    client=st.integers(0, CLIENTS - 1),
    version=st.integers(3, 13),
    topic=st.sampled_from(["t", "t", "t", *TOPICS]),
    partition=st.sampled_from([0, 0, 0, 0, 1]),
    batch=batches(),
    acks=st.sampled_from([-1, -1, -1, 1, 0, 2]),
    changed_at=st.sampled_from([None] * 9 + [30]) | st.integers(0, 400),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(st.lists(produced, min_size=1, max_size=6), min_size=1, max_size=4))
def test_produces_are_answered_alike_and_leave_the_same_bytes(
    brokers: Brokers, turns: list[list[Produced]]
) -> None:
    short, long = brokers.short, brokers.long
    brokers.connect()
    for requests in turns:
        of_short = short.exchange(*((each.client, each.frame(short)) for each in requests))
        of_long = long.exchange(*((each.client, each.frame(long)) for each in requests))

        assert short.closed == long.closed
        of_both = zip(without_ids(short, of_short), without_ids(long, of_long), strict=True)
        for (by_short, by_long), is_closed in zip(of_both, short.closed, strict=True):
            # What comes before a request that closes the connection may be answered or not.
            assert by_long.startswith(by_short) if is_closed else by_short == by_long
    assert short.log_bytes() == long.log_bytes()


# --- fetch --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fetched:
    """A fetch that waits as long as the test lets it, and what is produced meanwhile."""

    version: int
    back: int  # behind the end of the log
    min_bytes: int
    max_bytes: int
    partition_max_bytes: int
    isolation_level: int
    leader_epoch: int
    batches: list[bytes]

    def frame(self, bench: RecordBench) -> bytes:
        log = bench.store.topic("t").partition(0)
        wanted = Wanted(
            topic=named(bench, "t", self.version),
            offset=log.high_watermark - self.back,
            max_bytes=self.partition_max_bytes,
            leader_epoch=self.leader_epoch if self.version >= 9 else -1,
        )
        body = fetch_body(
            self.version,
            [wanted],
            max_wait_ms=60_000,
            min_bytes=self.min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=self.isolation_level,
        )
        return framed(request_header(ApiKey.FETCH, self.version, 9) + body)


fetched = st.builds(
    Fetched,
    version=st.integers(4, 18),
    back=st.sampled_from([0, 0, 0, 0, 1, -1]),
    min_bytes=st.sampled_from([1, 1, 1, 0, 200, 5000]),
    max_bytes=st.sampled_from([1 << 20, 1 << 20, 100, 0]),
    partition_max_bytes=st.sampled_from([1 << 20, 1 << 20, 100]),
    isolation_level=st.integers(0, 1),
    leader_epoch=st.sampled_from([-1, -1, 0, 3]),
    batches=st.lists(
        st.builds(lambda size: bytes(client_batch(b"v" * size)), st.sampled_from([3, 90, 20_000])),
        max_size=3,
    ),
)


@settings(max_examples=40, deadline=None)
@given(st.lists(fetched, min_size=1, max_size=4))
def test_fetches_are_answered_alike(brokers: Brokers, rounds: list[Fetched]) -> None:
    short, long = brokers.short, brokers.long
    brokers.connect()
    for fetch in rounds:
        answers: list[list[bytes]] = []
        for bench in (short, long):
            got = bench.exchange((0, fetch.frame(bench)))[0]
            for batch in fetch.batches:
                body = produce_body(9, [("t", 0, batch)])
                request = framed(request_header(ApiKey.PRODUCE, 9, 1) + body)
                got += bench.exchange((1, request))[0]
            bench.fetches.finish_all()
            got += bench.exchange()[0]
            answers.append(without_ids(bench, [got]))

        assert answers[0] == answers[1]
        assert answers[0] != [b""]
        assert short.fetches.waiting_count == 0
