"""The short ways of transactional producers answer with the same bytes as the long ways.

Two brokers get the same requests of producers that follow the protocol, or do not. One has short
ways, the other has none. Their clients get the same answers, and their logs hold the same bytes.
"""

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cordwood.broker.cluster_view import SoleBroker
from cordwood.broker.handlers.transaction_frames import TransactionFrames
from cordwood.broker.handlers.transactions import TransactionsHandler
from cordwood.broker.net.requests.request import RunsOn
from cordwood.broker.records.transaction_rounds import TransactionRounds
from cordwood.format.file_names import TRANSACTION_STATE_TOPIC
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.messages import decode_response, encode_request
from fakes.client_batches import client_batch
from fakes.record_bench import RecordBench
from wire.raw_client import framed, request_header
from wire.record_requests import produce_body

IDS = ("one", "two")
CLIENTS = 4  # for each id, one that asks the coordinator and one that produces
LAST_ADD_OF_CLIENTS = 3
FIRST_PRODUCE_OF_VERSION_2 = 12
FIRST_END_WITH_EPOCH = 5
ADD, END = ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN


class TransactionBench(RecordBench):
    """A broker's way of transactions."""

    def __init__(self, directory: Path, *, has_short_ways: bool) -> None:
        super().__init__(
            directory, {"t": {}}, clients=CLIENTS, has_short_ways=has_short_ways, durability="disk"
        )
        self.store.create_topic("u", partitions=2)
        coordinator = self.store.transactions
        view = SoleBroker(_no_identity(), self.store)
        handler = TransactionsHandler(
            coordinator, view, offsets_place=lambda _: ("", 0), allocate=_no_id
        )
        self.router.add_routes(
            route for route in handler.routes() if route.runs_on is RunsOn.CONTROL
        )
        if has_short_ways:
            frames = TransactionFrames(coordinator, view, self.router, self.metrics)
            for api in (ADD, END):
                self.router.add_frame_handler(api, frames)
                self.router.take_frames[api] = frames.take
        self.rounds = TransactionRounds(self.loop, self.watch, self.syncs, coordinator.work)
        self.rounds.start()

    def init(self, transactional_id: str) -> tuple[int, int]:
        answered, outcomes = threading.Event(), list[Outcome]()

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            answered.set()

        self.store.transactions.init_producer(
            transactional_id, timeout_ms=60_000, expected=None, done=done
        )
        while not answered.is_set():
            self.turn()
        (outcome,) = outcomes
        assert isinstance(outcome, Granted)
        return outcome.identity.producer_id, outcome.identity.epoch

    def exchange_all(self, *sends: tuple[int, bytes]) -> list[bytes]:
        """As `exchange`, until each that is connected has got its answer."""
        answers = self.exchange(*sends)
        asked = {client for client, _ in sends}
        while any(not answers[client] and not self.closed[client] for client in asked):
            answers = [old + new for old, new in zip(answers, self.exchange(), strict=True)]
        return answers

    def settle(self) -> None:
        """Until all transactions that ended are complete, and all of it is written."""
        while any(each.is_prepared for each in self.store.transactions.all()):
            self.turn()
        self.store.transactions.tick()  # what nobody waits for is written too
        self.turn()

    def state_bytes(self) -> dict[bytes | None, bytes | None]:
        """The newest record of each id: which earlier ones are left out is a matter of time."""
        log = self.store.registry.get(TRANSACTION_STATE_TOPIC).partition(0)
        log.promises.await_kept(log.end_offset)
        return {record.key: record.value for record in log.read(isolation="read_uncommitted")}

    def close(self) -> None:
        self.disconnect()
        self.loop._close()
        self.syncs.stop()
        self.rounds.stop()
        self.store.close()


def _no_identity() -> Any:
    return None


def _no_id() -> Any:
    raise AssertionError("no idempotent producer is here")


@dataclass(frozen=True)
class Step:
    """A request of one producer, in the wrong state perhaps."""

    producer: int
    kind: str
    version: int
    epoch_change: int
    topic: str
    partition: int
    values: int
    is_commit: bool

    @property
    def partitions(self) -> list[int]:
        return [self.partition] * (1 + self.values // 3)  # sometimes twice the same

    @property
    def end_version(self) -> int:
        """A client of version 2 of transactions produces and ends with the newest versions."""
        is_newest = 3 + self.version >= FIRST_PRODUCE_OF_VERSION_2
        return FIRST_END_WITH_EPOCH if is_newest else min(self.version, FIRST_END_WITH_EPOCH - 1)

    def next_identity(self, identity: tuple[int, int], answer: bytes) -> tuple[int, int]:
        """What the producer uses after this answer."""
        if self.kind != "end" or self.end_version < FIRST_END_WITH_EPOCH:
            return identity
        answered = decode_response(END, FIRST_END_WITH_EPOCH, answer[9:])
        if answered.error_code:
            return identity
        return answered.producer_id, answered.producer_epoch

    def send(self, identity: tuple[int, int], sequences: dict[Any, int]) -> tuple[int, bytes]:
        producer_id, epoch = identity[0], identity[1] + self.epoch_change
        transactional_id = IDS[self.producer]
        if self.kind == "produce":
            key = (self.producer, epoch, self.topic, self.partition)
            sequence = sequences.get(key, 0)
            batch = client_batch(
                *([b"v" * 10] * self.values),
                producer_id=producer_id,
                producer_epoch=epoch,
                sequence=sequence,
                transactional=True,
            )
            sequences[key] = sequence + self.values
            body = produce_body(
                3 + self.version,
                [(self.topic, self.partition, bytes(batch))],
                transactional_id=transactional_id,
            )
            header = request_header(ApiKey.PRODUCE, 3 + self.version, 7)
            return 2 + self.producer, framed(header + body)
        if self.kind == "add":
            version = min(self.version, LAST_ADD_OF_CLIENTS)
            body = encode_request(
                ADD,
                version,
                {
                    "v3_and_below_transactional_id": transactional_id,
                    "v3_and_below_producer_id": producer_id,
                    "v3_and_below_producer_epoch": epoch,
                    "v3_and_below_topics": [{"name": self.topic, "partitions": self.partitions}],
                },
            )
            return self.producer, framed(request_header(ADD, version, 8) + body)
        version = self.end_version
        body = encode_request(
            END,
            version,
            {
                "transactional_id": transactional_id,
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "committed": self.is_commit,
            },
        )
        return self.producer, framed(request_header(END, version, 9) + body)


steps = st.builds(
    Step,
    producer=st.integers(0, 1),
    kind=st.sampled_from(["add", "produce", "produce", "end"]),
    version=st.sampled_from([*range(9), 9, 9, 9, 9]),
    epoch_change=st.sampled_from([0] * 12 + [1, -1]),
    topic=st.sampled_from(["t", "t", "u", "absent"]),
    partition=st.sampled_from([0, 0, 0, 1, 7]),
    values=st.integers(1, 3),
    is_commit=st.booleans(),
)


@dataclass(frozen=True)
class Brokers:
    short: TransactionBench
    long: TransactionBench


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    path = tmp_path_factory.mktemp("ways")
    short = TransactionBench(path / "short", has_short_ways=True)
    long = TransactionBench(path / "long", has_short_ways=False)
    yield Brokers(short, long)
    short.close()
    long.close()


@settings(max_examples=25, deadline=None)
@given(st.lists(steps, min_size=1, max_size=14))
def test_transactions_are_answered_alike_and_leave_the_same_bytes(
    brokers: Brokers, steps: list[Step]
) -> None:
    identities = [brokers.short.init(each) for each in IDS]
    assert [brokers.long.init(each) for each in IDS] == identities
    sequences: dict[Any, int] = {}
    for step in steps:
        send = step.send(identities[step.producer], sequences)

        of_short, of_long = brokers.short.exchange_all(send), brokers.long.exchange_all(send)

        assert of_short == of_long, step
        if of_short[step.producer]:
            identity = step.next_identity(identities[step.producer], of_short[step.producer])
            identities[step.producer] = identity
        assert brokers.short.closed == brokers.long.closed
    brokers.short.settle()
    brokers.long.settle()
    assert brokers.short.log_bytes() == brokers.long.log_bytes()
    assert brokers.short.state_bytes() == brokers.long.state_bytes()
