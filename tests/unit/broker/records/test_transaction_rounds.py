"""The coordinator's work in the data loop: the same order of durable writes as with its thread."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.broker.records.disk_syncs import DiskSyncs
from cordwood.broker.records.log_watch import LogWatch
from cordwood.broker.records.transaction_rounds import _MARKERS_MAX, TransactionRounds
from cordwood.format.transaction_records import TransactionState
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.transactions.coordinator import TransactionCoordinator
from cordwood.log.transactions.marker_writer import WantedMarker
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_metadata import ProducerIdentity
from cordwood.log.transactions.transaction_topic import TransactionTopic
from cordwood.quantities import ProducerId
from fakes.own_threads import OwnThreads

TIMEOUT_S = 30.0
ID = "billing"
PLACE = ("paid", 0)


class Served:
    """A store whose coordinator's work is done in a loop."""

    def __init__(self, path: Path, durability: str, own: OwnThreads) -> None:
        self._own = own
        defaults = TopicConfig.parse({"durability": durability})
        self.store = Store([str(path)], StoreSetup(defaults=defaults))
        self.store.create_topic("paid", partitions=2)
        self.loop = EventLoop("test-data")
        self.syncs = DiskSyncs(self.loop)
        self.rounds = TransactionRounds(
            self.loop, LogWatch(self.loop), self.syncs, self.coordinator.work
        )
        self.rounds.start()
        self.loop.start()
        self._is_stopped = False

    @property
    def threads(self) -> set[str]:
        """The names of its own threads: other brokers of the process have such threads too."""
        return set(self._own.names)

    @property
    def coordinator(self) -> TransactionCoordinator:
        return self.store.transactions

    def stop_serving(self) -> None:
        if not self._is_stopped:
            self._is_stopped = True
            self.loop.stop()
            self.syncs.stop()
            self.rounds.stop()

    def close(self) -> None:
        self.stop_serving()
        self.store.close()

    def ask(self, request: Any, *args: Any, **kwargs: Any) -> Outcome:
        answered, outcomes = threading.Event(), list[Outcome]()

        def done(outcome: Outcome) -> None:
            outcomes.append(outcome)
            answered.set()

        request(*args, done=done, **kwargs)
        assert answered.wait(TIMEOUT_S)
        return outcomes[0]

    def init(self) -> ProducerIdentity:
        outcome = self.ask(self.coordinator.init_producer, ID, timeout_ms=60_000, expected=None)
        assert isinstance(outcome, Granted)
        return outcome.identity

    def commit(self, producer: ProducerIdentity) -> Outcome:
        added = self.ask(self.coordinator.add_partitions, ID, producer, {PLACE}, client_version=0)
        assert isinstance(added, Granted)
        return self.ask(self.coordinator.end, ID, producer, is_commit=True, client_version=0)

    def settle(self, producer: ProducerIdentity) -> None:
        """Ask for the same end again, which is answered when it is complete."""
        outcome = self.ask(self.coordinator.end, ID, producer, is_commit=True, client_version=0)
        assert isinstance(outcome, Granted)

    @property
    def state(self) -> TransactionState:
        found = self.coordinator.find(ID)
        assert found is not None
        return found.state


@pytest.fixture(params=["os", "disk"])
def served(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Served]:
    with OwnThreads() as own:
        made = Served(tmp_path, request.param, own)
        yield made
        made.close()


@pytest.fixture
def marked(served: Served, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """The threads that wrote markers together, with how many."""
    writer = served.coordinator.markers
    append, seen = writer.append, list[tuple[str, int]]()

    def spied(markers: Any, *, wait: bool = True) -> Any:
        wanted = list(markers)
        if wanted:
            seen.append((threading.current_thread().name, len(wanted)))
        return append(wanted, wait=wait)

    monkeypatch.setattr(writer, "append", spied)
    return seen


def test_transactions_follow_each_other_without_the_thread(served: Served) -> None:
    producer = served.init()

    outcomes = [served.commit(producer) for _ in range(3)]
    served.settle(producer)

    assert all(isinstance(outcome, Granted) for outcome in outcomes)
    assert served.state is TransactionState.COMPLETE_COMMIT
    assert served.store.topic("paid").partition(0).end_offset == 3  # the markers
    assert "cordwood-transactions" not in served.threads


def test_the_decision_is_durable_before_the_answer_and_before_a_marker(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = served.init()
    writer = served.coordinator.markers
    append, seen = writer.append, list[bool]()

    def is_decided() -> bool:
        topic = TransactionTopic(served.store.registry).find()
        assert topic is not None
        log = topic.partition(0)
        return log.promises.is_kept(log.end_offset)

    def spied(markers: Any, *, wait: bool = True) -> Any:
        wanted = list(markers)
        if wanted:
            seen.append(is_decided() and served.state is TransactionState.PREPARE_COMMIT)
        return append(wanted, wait=wait)

    monkeypatch.setattr(writer, "append", spied)
    served.ask(served.coordinator.add_partitions, ID, producer, {PLACE}, client_version=0)
    answered: list[bool] = []
    done = threading.Event()

    def answer(_outcome: Outcome) -> None:
        answered.append(is_decided())
        done.set()

    served.coordinator.end(ID, producer, is_commit=True, client_version=0, done=answer)
    assert done.wait(TIMEOUT_S)
    served.settle(producer)

    assert answered == [True]
    assert seen == [True]


def test_markers_wait_while_the_store_is_copied(served: Served) -> None:
    producer = served.init()

    with served.coordinator.markers.turns.still():
        ended = served.commit(producer)
        meanwhile = served.state
    served.settle(producer)

    assert isinstance(ended, Granted)
    assert meanwhile is TransactionState.PREPARE_COMMIT
    assert served.state is TransactionState.COMPLETE_COMMIT


def test_after_the_broker_the_thread_does_the_work_again(served: Served) -> None:
    producer = served.init()
    served.commit(producer)

    served.stop_serving()
    outcome = served.commit(producer)
    served.settle(producer)

    assert isinstance(outcome, Granted)
    assert served.state is TransactionState.COMPLETE_COMMIT


def test_the_markers_of_offsets_are_left_to_the_thread(served: Served) -> None:
    with served.store.transaction("library") as transaction:
        transaction.append("paid", b"7")
        transaction.commit_offsets("group", {("orders", 0): 7})

    assert served.store.committed_offsets.of_group("group")
    assert "cordwood-transactions" in served.threads


def test_a_log_that_a_publication_holds_gets_its_marker_as_soon_as_it_is_free(
    served: Served, marked: list[tuple[str, int]]
) -> None:
    producer = served.init()
    log = served.store.topic("paid").partition(0)
    holder = log.batches._holder
    with holder.lock:
        holder.commit(holder.state._replace(held_from=holder.state.end))

    ended = served.commit(producer)
    while ("cordwood-transactions", 1) not in marked:
        pass  # the loop has found the log held, and the thread waits for it
    meanwhile = served.state
    with holder.lock:
        holder.release_turn()
    served.settle(producer)  # nobody has to try again

    assert isinstance(ended, Granted)
    assert meanwhile is TransactionState.PREPARE_COMMIT
    assert served.state is TransactionState.COMPLETE_COMMIT
    assert not served.coordinator.failure_count


def test_the_markers_of_a_large_transaction_do_not_hold_up_the_loop(
    served: Served, marked: list[tuple[str, int]]
) -> None:
    count = _MARKERS_MAX + 1
    served.store.create_topic("wide", partitions=count)
    producer = served.init()
    places = {("wide", number) for number in range(count)}
    served.ask(served.coordinator.add_partitions, ID, producer, places, client_version=0)

    served.ask(served.coordinator.end, ID, producer, is_commit=True, client_version=0)
    served.settle(producer)

    assert served.state is TransactionState.COMPLETE_COMMIT
    assert marked == [("cordwood-transactions", count)]


def test_the_markers_of_many_transactions_are_written_in_several_turns(
    served: Served, marked: list[tuple[str, int]]
) -> None:
    half = _MARKERS_MAX // 2 + 1
    served.store.create_topic("wide", partitions=half)
    places = {("wide", number) for number in range(half)}
    ids = [f"id-{number}" for number in range(4)]
    coordinator = served.coordinator
    producers: dict[str, ProducerIdentity] = {}
    for each in ids:
        made = served.ask(coordinator.init_producer, each, timeout_ms=60_000, expected=None)
        assert isinstance(made, Granted)
        producers[each] = made.identity
        served.ask(coordinator.add_partitions, each, made.identity, places, client_version=0)

    def end_all() -> None:
        for each, producer in producers.items():
            served.ask(coordinator.end, each, producer, is_commit=True, client_version=0)

    with coordinator.markers.turns.still():  # so that all of them wait together
        end_all()
    end_all()  # again: answered when they are complete

    assert marked == [("test-data", half)] * len(ids)


def test_markers_that_are_owed_since_a_crash_are_left_to_the_thread(
    served: Served, marked: list[tuple[str, int]]
) -> None:
    log = served.store.topic("paid").partition(0)
    served.coordinator.work.owe(
        [
            WantedMarker(
                place=PLACE,
                producer_id=ProducerId(7),
                epoch=0,
                is_commit=False,
                version=1,
                coordinator_epoch=0,
            )
        ]
    )

    served.coordinator.tick()
    while not log.end_offset:
        pass

    assert marked == [("cordwood-transactions", 1)]
