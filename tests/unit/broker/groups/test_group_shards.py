"""Groups of the partitions that this broker leads: loaded, unloaded, and gated by their epoch."""

from collections.abc import Iterator
from concurrent.futures import Future
from uuid import UUID

import pytest

from cordwood.broker.groups.classic.group_config import GroupConfig
from cordwood.broker.groups.coordinator import GroupCoordinator
from cordwood.broker.groups.journal.group_loader import GroupLoader
from cordwood.broker.groups.journal.group_log import GroupLogWriter
from cordwood.broker.groups.journal.group_shards import GroupShards
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.topics.committed_offsets import CommittedOffset
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.log.transactions.transaction_metadata import ProducerIdentity
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import LeaderEpoch, Offset, ProducerId, TimestampMs
from fakes.handler_calls import InlineExecutor
from fakes.manual_clock import ManualClock
from fakes.manual_scheduler import ManualScheduler, run_until
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

PLACE = ("orders", 0)
PRODUCER = ProducerIdentity(producer_id=ProducerId(7), epoch=0)


class Replicas:
    """The other replicas: they have what was appended when the test says so."""

    def __init__(self) -> None:
        self.waits: list[tuple[int, Offset, LeaderEpoch, Future[bool]]] = []
        self.answer: bool | None = True
        self.refused: ErrorCode | None = None

    def refusal(self, partition: int, led_in: LeaderEpoch) -> ErrorCode | None:
        return self.refused

    def await_committed(self, partition: int, end: Offset, led_in: LeaderEpoch) -> Future[bool]:
        future: Future[bool] = Future()
        self.waits.append((partition, end, led_in, future))
        if self.answer is not None:
            future.set_result(self.answer)
        return future


class Member:
    """The groups of one broker of a cluster; its loop is turned by hand."""

    def __init__(self, commit_timeout_s: float = 0.05) -> None:
        self.clock = ManualClock()
        self.store = open_store(
            SimulatedFileSystem(clock=self.clock), clock=self.clock, role=AMONG_OTHERS
        )
        self.topic = self.store.hosting.host(
            HostedTopic(
                name="__consumer_offsets",
                topic_id=UUID(int=9),
                partitions=3,
                here=frozenset({0, 1, 2}),
            )
        )
        self.store.offsets_topic.is_of_cluster = True
        offsets = self.store.committed_offsets
        offsets.coordinate_partly(lambda name: None)
        self.replicas = Replicas()
        self.shards = GroupShards(lambda: 3, self.replicas)
        self.scheduler = ManualScheduler(self.clock)
        self.log = GroupLogWriter(
            offsets,
            self.scheduler,
            lambda: None,
            self.shards,
            commit_timeout_s=commit_timeout_s,
        )
        self.coordinator = GroupCoordinator(
            offsets=offsets,
            group_log=self.log,
            loader=GroupLoader(offsets, lambda records: []),
            scheduler=self.scheduler,
            clock=self.clock,
            config=GroupConfig(),
            workers=InlineExecutor(),
            shards=self.shards,
        )
        self.coordinator.start()
        self.log.start()

    @property
    def number(self) -> int:
        return self.number_of("billing")

    def number_of(self, group: str) -> int:
        number = self.shards.number_of(group)
        assert number is not None
        return number

    def lead(self, epoch: int, group: str = "billing") -> None:
        number = self.number_of(group)
        log = self.topic.partition(number)
        log.replica.lead(LeaderEpoch(epoch))
        log.replica.raise_high_watermark(log.end_offset)
        self.coordinator.begin_shard(number, LeaderEpoch(epoch))
        self.scheduler.run_ready()

    def cease(self, epoch: int) -> None:
        self.topic.partition(self.number).replica.follow(LeaderEpoch(epoch))
        self.coordinator.end_shard(self.number)

    def begin_commit(self, offset: int, group: str = "billing") -> list[ErrorCode]:
        """What it is answered, once it is."""
        codes: list[ErrorCode] = []
        committed = CommittedOffset(offset=Offset(offset), committed_ms=TimestampMs(1))
        self.coordinator.keeper.commit(group, {PLACE: committed}, codes.append)
        return codes

    def commit(self, offset: int, group: str = "billing") -> ErrorCode:
        codes = self.begin_commit(offset, group)
        run_until(self.scheduler, lambda: bool(codes))
        return codes[0]

    def committed(self) -> int | None:
        found = self.coordinator.keeper.of_group("billing").get(PLACE)
        return None if found is None else found.offset


@pytest.fixture
def member() -> Iterator[Member]:
    made = Member()
    yield made
    made.log.stop()
    made.store.close()


def test_a_broker_coordinates_the_groups_of_partitions_that_it_leads(member: Member) -> None:
    assert member.coordinator.refusal("billing") is ErrorCode.not_coordinator

    member.lead(1)
    assert member.coordinator.refusal("billing") is None

    member.cease(2)
    assert member.coordinator.refusal("billing") is ErrorCode.not_coordinator


def test_every_broker_lists_its_groups_whichever_partitions_it_leads(member: Member) -> None:
    assert member.coordinator.refusal_to_list() is None  # it leads none

    groups = [f"group-{number}" for number in range(20)]
    for number in range(3):
        group = next(each for each in groups if member.number_of(each) == number)
        member.lead(1, group)
        assert member.coordinator.refusal_to_list() is None
        assert member.commit(5, group) is ErrorCode.none
        assert group in [each.group_id for each in member.coordinator.all_groups()]


def test_groups_are_not_listed_while_some_of_them_are_loaded(member: Member) -> None:
    member.shards.begin(1, LeaderEpoch(3))
    assert member.coordinator.refusal_to_list() is ErrorCode.coordinator_load_in_progress

    member.shards.finish_load(1)
    assert member.coordinator.refusal_to_list() is None

    member.shards.begin(1, LeaderEpoch(4))
    member.shards.end(1)
    assert member.coordinator.refusal_to_list() is None


def test_a_commit_is_acknowledged_when_the_other_replicas_have_it(member: Member) -> None:
    member.lead(4)

    assert member.commit(7) is ErrorCode.none

    assert member.committed() == 7
    [(number, end, led_in, _)] = member.replicas.waits
    assert (number, end, led_in) == (member.number, 1, 4)


def test_a_commit_is_refused_if_the_leadership_ends_before_the_others_have_it(
    member: Member,
) -> None:
    member.lead(4)
    member.replicas.answer = False

    assert member.commit(7) is ErrorCode.not_coordinator

    assert member.committed() is None


def test_a_commit_that_takes_too_long_is_not_acknowledged(member: Member) -> None:
    member.lead(4)
    member.replicas.answer = None

    assert member.commit(7) is ErrorCode.coordinator_not_available

    assert member.committed() is None


def test_a_partition_that_waits_for_its_replicas_holds_up_no_other() -> None:
    member = Member(commit_timeout_s=60)
    names = (f"group-{number}" for number in range(100))
    other = next(name for name in names if member.number_of(name) != member.number)
    member.lead(4)
    member.lead(4, other)
    member.replicas.answer = None
    first = member.begin_commit(7)
    run_until(member.scheduler, lambda: len(member.replicas.waits) == 1)
    later = member.begin_commit(8)
    member.replicas.answer = True

    assert member.commit(9, other) is ErrorCode.none
    assert (first, later) == ([], [])
    assert member.topic.partition(member.number).end_offset == 1  # the later one is collected

    member.replicas.waits[0][3].set_result(True)
    run_until(member.scheduler, lambda: bool(first and later))
    assert member.committed() == 8
    member.log.stop()
    member.store.close()


def test_a_commit_that_too_few_replicas_would_have_is_not_written(member: Member) -> None:
    member.lead(4)
    member.replicas.refused = ErrorCode.coordinator_not_available

    assert member.commit(7) is ErrorCode.coordinator_not_available

    assert member.topic.partition(member.number).end_offset == 0
    assert member.replicas.waits == []


def test_a_commit_of_an_earlier_epoch_is_not_written_in_a_later_one(member: Member) -> None:
    member.lead(4)
    log = member.topic.partition(member.number)
    log.replica.follow(LeaderEpoch(5))
    log.replica.lead(LeaderEpoch(6))

    assert member.commit(7) is ErrorCode.not_coordinator

    assert log.end_offset == 0


def test_the_next_coordinator_loads_what_was_committed_and_the_last_one_forgets(
    member: Member,
) -> None:
    member.lead(1)
    member.commit(7)

    member.cease(2)
    forgotten = member.committed()
    member.lead(3)

    assert forgotten is None
    assert member.committed() == 7


# --- in transactions -----------------------------------------------------------------------------


def pend(member: Member, offset: int) -> ErrorCode:
    """Commit an offset in a transaction of producer 7, which its coordinator allowed."""
    codes: list[ErrorCode] = []
    committed = CommittedOffset(offset=Offset(offset), committed_ms=TimestampMs(1))
    guard = member.topic.partition(member.number).producers.guard(
        PRODUCER.producer_id, PRODUCER.epoch, bumps_epochs=False
    )
    member.coordinator.keeper.commit("billing", {PLACE: committed}, codes.append, PRODUCER, guard)
    run_until(member.scheduler, lambda: bool(codes))
    return codes[0]


def end(member: Member, *, is_commit: bool) -> None:
    """The marker of the transaction is committed in the partition of the group."""
    log = member.topic.partition(member.number)
    marker = MarkerFacts(
        producer_id=PRODUCER.producer_id,
        producer_epoch=PRODUCER.epoch,
        coordinator_epoch=1,
        offset=log.end_offset,
        timestamp=TimestampMs(1),
        is_abort=not is_commit,
    )
    at = log.batches.end_transaction(marker, wait=False)
    member.store.committed_offsets.note_marker(
        member.number, at, PRODUCER.producer_id, is_commit=is_commit
    )


@pytest.mark.parametrize(("is_commit", "expected"), [(True, 9), (False, 7)])
def test_an_offset_in_a_transaction_counts_with_the_marker(
    member: Member, is_commit: bool, expected: int
) -> None:
    member.lead(1)
    member.commit(7)

    assert pend(member, 9) is ErrorCode.none
    assert member.committed() == 7
    assert member.coordinator.keeper.pending("billing") == {PLACE}
    end(member, is_commit=is_commit)

    assert member.committed() == expected
    assert member.coordinator.keeper.pending("billing") == set()


def test_the_next_coordinator_knows_offsets_that_are_pending(member: Member) -> None:
    member.lead(1)
    pend(member, 9)

    member.cease(2)
    forgotten = member.coordinator.keeper.pending("billing")
    member.lead(3)
    pending = member.coordinator.keeper.pending("billing")
    end(member, is_commit=True)

    assert forgotten == set()
    assert pending == {PLACE}
    assert member.committed() == 9


def test_offsets_of_a_transaction_that_ended_meanwhile_are_refused(member: Member) -> None:
    member.lead(1)
    codes: list[ErrorCode] = []
    committed = CommittedOffset(offset=Offset(9), committed_ms=TimestampMs(1))
    guard = member.topic.partition(member.number).producers.guard(
        PRODUCER.producer_id, PRODUCER.epoch, bumps_epochs=False
    )
    end(member, is_commit=False)

    member.coordinator.keeper.commit("billing", {PLACE: committed}, codes.append, PRODUCER, guard)
    run_until(member.scheduler, lambda: bool(codes))

    assert codes == [ErrorCode.invalid_txn_state]
    assert member.coordinator.keeper.pending("billing") == set()
