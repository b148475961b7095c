"""Transactions of the partitions that this broker leads: loaded, unloaded, gated by their epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from uuid import UUID

import pytest

from cordwood.broker.cluster.transactions.marker_sender import MarkerSender
from cordwood.broker.cluster.transactions.transaction_shards import SharedWork, TransactionShards
from cordwood.format.transaction_records import TransactionState, transaction_partition
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.log.transactions.marker_writer import WantedMarker
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_machine import Refusal, Refused
from cordwood.log.transactions.transaction_metadata import ProducerIdentity
from cordwood.log.transactions.transaction_topic import read_transactions
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset, ProducerId
from fakes.handler_calls import InlineExecutor
from fakes.manual_clock import ManualClock
from fakes.manual_scheduler import ManualScheduler, run_until
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

TOPIC = "__transaction_state"
ME, OTHER = 1, 2
BILLING = "billing"
NUMBER = transaction_partition(BILLING, 3)
ORDERS = ("orders", 0)


class Lookup:
    """All partitions are led here, unless the test says otherwise."""

    def __init__(self) -> None:
        self.leader: int | None = ME

    def is_known(self, place: tuple[str, int]) -> bool:
        return True

    def leader_of(self, place: tuple[str, int]) -> int | None:
        return self.leader


class Member:
    """The coordinator of one broker; its loop is turned by hand, its replicas are the test's."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.fs = SimulatedFileSystem(clock=self.clock)
        self.store = open_store(self.fs, clock=self.clock, role=AMONG_OTHERS)
        self.topic = self.store.hosting.host(
            HostedTopic(name=TOPIC, topic_id=UUID(int=9), partitions=3, here=frozenset({0, 1, 2}))
        )
        self.scheduler = ManualScheduler(self.clock)
        self.waits: list[tuple[int, Offset, LeaderEpoch, Future[bool]]] = []
        self.commits = True
        self.is_fenced = False
        self.refused: Refusal | None = None
        self.markers: list[WantedMarker] = []
        self.marker_code: ErrorCode | None = ErrorCode.none
        self.waiting_markers: list[Callable[[ErrorCode], object]] = []
        self.ids = iter(range(1000, 2000))
        sender = MarkerSender(
            self.scheduler,
            Lookup(),  # type: ignore[arg-type]
            self,
            node_id=ME,
            write_here=self._write_here,
        )
        self.shared = SharedWork(self, sender, self.scheduler, lambda: ProducerId(next(self.ids)))
        self.shards = TransactionShards(
            self, self.shared, loop=self.scheduler, workers=InlineExecutor(), clock=self.clock
        )

    # --- the ports ---------------------------------------------------------------------------

    def count(self) -> int | None:
        return 3

    def log(self, number: int) -> PartitionLog:
        return self.topic.partition(number)

    def refusal(self, number: int) -> Refusal | None:
        return self.refused

    def await_committed(self, partition: int, end: Offset, led_in: LeaderEpoch) -> Future[bool]:
        future: Future[bool] = Future()
        self.waits.append((partition, end, led_in, future))
        if self.commits:
            self.log(partition).replica.raise_high_watermark(end)
            future.set_result(True)
        return future

    def send(self, node_id: int, call: object) -> None:
        raise AssertionError("no other broker leads anything here")

    def _write_here(
        self,
        markers: Sequence[WantedMarker],
        done: Callable[[Sequence[ErrorCode]], object],
    ) -> None:
        self.markers += markers
        if self.marker_code is not None:
            done([self.marker_code] * len(markers))
        else:
            self.waiting_markers.append(lambda code: done([code] * len(markers)))

    # --- what a test does --------------------------------------------------------------------

    def lead(self, number: int = NUMBER, epoch: int = 5) -> None:
        log = self.log(number)
        log.replica.lead(LeaderEpoch(epoch))
        log.replica.raise_high_watermark(log.end_offset)
        self.shards.begin_shard(number, LeaderEpoch(epoch))
        self.scheduler.run_ready()

    def ask(self, question: Callable[[Callable[[Outcome], None]], None]) -> list[Outcome]:
        outcomes: list[Outcome] = []
        question(outcomes.append)
        self.scheduler.run_ready()
        return outcomes

    def until(self, is_done: Callable[[], object]) -> None:
        run_until(self.scheduler, lambda: bool(is_done()))

    def init(self, name: str = BILLING) -> ProducerIdentity:
        outcomes = self.ask(
            lambda done: self.shards.init_producer(
                name, timeout_ms=60_000, expected=None, done=done
            )
        )
        self.until(lambda: outcomes)
        assert isinstance(outcomes[0], Granted), outcomes
        return outcomes[0].identity

    def add(self, producer: ProducerIdentity, *, is_brief: bool = False) -> list[Outcome]:
        return self.ask(
            lambda done: self.shards.add_partitions(
                BILLING, producer, {ORDERS}, client_version=2, done=done, is_brief=is_brief
            )
        )

    def end(self, producer: ProducerIdentity) -> list[Outcome]:
        return self.ask(
            lambda done: self.shards.end(
                BILLING, producer, is_commit=True, client_version=2, done=done
            )
        )

    def stored(self) -> TransactionState | None:
        """What the next coordinator would load."""
        found = read_transactions([self.log(NUMBER)])
        return found[0].state if found else None


@pytest.fixture
def member() -> Iterator[Member]:
    member = Member()
    yield member
    member.shards.close()
    member.store.close()


def test_a_broker_that_does_not_lead_sends_producers_away(member: Member) -> None:
    outcomes = member.ask(
        lambda done: member.shards.init_producer(
            BILLING, timeout_ms=60_000, expected=None, done=done
        )
    )

    assert outcomes == [Refused(Refusal.NOT_COORDINATOR)]
    assert member.shards.refusal(BILLING) is Refusal.NOT_COORDINATOR


def test_a_partition_that_is_being_loaded_asks_for_patience(member: Member) -> None:
    member.log(NUMBER).replica.lead(LeaderEpoch(5))

    member.shards.begin_shard(NUMBER, LeaderEpoch(5))  # the loop has not turned

    assert member.shards.refusal(BILLING) is Refusal.COORDINATOR_LOAD_IN_PROGRESS
    assert member.shards.is_loading
    member.scheduler.run_ready()
    assert member.shards.refusal(BILLING) is None
    assert not member.shards.is_loading


def test_a_broker_that_the_controllers_do_not_hear_does_not_coordinate(member: Member) -> None:
    member.lead()
    producer = member.init()

    member.is_fenced = True

    assert member.add(producer) == [Refused(Refusal.NOT_COORDINATOR)]


def test_a_transaction_goes_its_way_and_each_step_is_replicated(member: Member) -> None:
    member.lead()
    producer = member.init()

    added = member.add(producer)
    member.until(lambda: added)
    ended = member.end(producer)
    member.until(lambda: ended and member.markers)
    member.until(lambda: member.shards.find(BILLING).is_complete)  # type: ignore[union-attr]

    assert isinstance(ended[0], Granted)
    assert ended[0].identity.epoch == producer.epoch + 1
    [marker] = member.markers
    assert (marker.place, marker.coordinator_epoch, marker.is_commit) == (ORDERS, 5, True)
    # Empty, Ongoing and PrepareCommit were waited for; the completion was not.
    assert [(number, epoch) for number, _, epoch, _ in member.waits] == [(NUMBER, 5)] * 3


def test_a_partition_is_added_only_when_other_replicas_know_of_it(member: Member) -> None:
    member.lead()
    producer = member.init()
    member.commits = False

    outcomes = member.add(producer)
    member.until(lambda: len(member.waits) == 2)
    member.scheduler.run_ready()
    before = list(outcomes)
    *_, future = member.waits[-1]
    future.set_result(True)

    assert before == []
    assert isinstance(outcomes[0], Granted)


def test_what_is_not_committed_when_the_leadership_ends_is_not_acknowledged(
    member: Member,
) -> None:
    member.lead()
    producer = member.init()
    member.until(lambda: member.add(producer))
    member.commits = False
    outcomes = member.end(producer)
    member.until(lambda: len(member.waits) == 3)

    member.log(NUMBER).replica.follow(LeaderEpoch(6))
    member.shards.end_shard(NUMBER)
    *_, future = member.waits[-1]
    future.set_result(False)

    assert outcomes == [Refused(Refusal.NOT_COORDINATOR)]
    assert member.markers == []
    assert member.shards.find(BILLING) is None


def test_the_next_coordinator_completes_what_was_prepared_with_its_own_epoch(
    member: Member,
) -> None:
    member.lead()
    producer = member.init()
    added = member.add(producer)
    member.until(lambda: added)
    member.marker_code = None  # the markers are under way
    ended = member.end(producer)
    member.until(lambda: ended and member.waiting_markers)

    member.shards.end_shard(NUMBER)
    member.marker_code = ErrorCode.none
    member.log(NUMBER).replica.follow(LeaderEpoch(6))
    member.lead(epoch=7)
    loaded = member.shards.find(BILLING)
    member.waiting_markers[0](ErrorCode.none)  # the answer to the old coordinator
    member.until(lambda: member.shards.find(BILLING).is_complete)  # type: ignore[union-attr]

    assert loaded is not None
    assert loaded.is_prepared
    assert loaded.partitions == {ORDERS}
    assert [marker.coordinator_epoch for marker in member.markers] == [5, 7]
    assert member.stored() is TransactionState.PREPARE_COMMIT  # the completion is not urgent


def test_records_of_an_earlier_leadership_are_not_appended(member: Member) -> None:
    member.lead()
    producer = member.init()
    member.log(NUMBER).replica.follow(LeaderEpoch(6))  # the coordinator was not told yet

    outcomes = member.add(producer)
    member.until(lambda: outcomes)

    assert outcomes == [Refused(Refusal.NOT_COORDINATOR)]


def test_too_few_replicas_in_sync_refuse_a_change_before_it_is_written(member: Member) -> None:
    member.lead()
    producer = member.init()
    end = member.log(NUMBER).end_offset
    member.refused = Refusal.COORDINATOR_NOT_AVAILABLE

    outcomes = member.add(producer)
    member.until(lambda: outcomes)

    assert outcomes == [Refused(Refusal.COORDINATOR_NOT_AVAILABLE)]
    assert member.log(NUMBER).end_offset == end
    member.refused = None
    again = member.add(producer)
    member.until(lambda: again)
    assert isinstance(again[0], Granted)


def test_a_brief_question_does_not_wait_for_markers_and_a_patient_one_does(
    member: Member,
) -> None:
    member.lead()
    producer = member.init()
    added = member.add(producer)
    member.until(lambda: added)
    member.marker_code = None
    ended = member.end(producer)
    member.until(lambda: ended and member.waiting_markers)
    assert isinstance(ended[0], Granted)
    successor = ended[0].identity

    brief = member.add(successor, is_brief=True)
    patient = member.add(successor)
    before = list(patient)
    member.waiting_markers[0](ErrorCode.none)
    member.until(lambda: patient)

    assert brief == [Refused(Refusal.CONCURRENT_TRANSACTIONS)]
    assert before == []
    assert isinstance(patient[0], Granted)


def test_a_request_whose_record_is_not_replicated_for_long_is_answered_and_counts_later(
    member: Member,
) -> None:
    member.lead()
    producer = member.init()
    member.commits = False
    outcomes = member.add(producer)
    member.until(lambda: len(member.waits) == 2)
    member.shards.start()

    member.scheduler.advance(32)
    late = list(outcomes)
    *_, future = member.waits[-1]
    future.set_result(True)

    assert late == [Refused(Refusal.COORDINATOR_NOT_AVAILABLE)]
    assert outcomes == late
    state = member.shards.find(BILLING)
    assert state is not None
    assert state.state is TransactionState.ONGOING


def test_a_transaction_that_takes_too_long_is_aborted(member: Member) -> None:
    member.lead()
    producer = member.init()
    added = member.add(producer)
    member.until(lambda: added)
    member.shards.start()

    member.scheduler.advance(75)
    member.until(lambda: member.markers)

    assert not member.markers[0].is_commit
    assert member.markers[0].epoch == producer.epoch + 1


def test_all_tables_have_one_budget_which_a_lost_partition_gives_back(member: Member) -> None:
    names = {transaction_partition(f"id-{n}", 3): f"id-{n}" for n in range(50)}
    for number, name in names.items():
        member.lead(number)
        member.init(name)
    used = member.shards._budget.used

    member.shards.end_shard(0)

    assert len(member.shards.all()) == len(names) - 1
    assert member.shards._budget.used == used * 2 // 3
