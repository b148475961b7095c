"""Questions to the coordinators of transactions: here, on other brokers, and while they move."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Any

from cordwood.broker.cluster.transactions.transaction_verification import TransactionVerification
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer, OutboundCall
from cordwood.errors import BrokerUnreachableError
from cordwood.log.transactions.transaction_entry import Granted, Outcome
from cordwood.log.transactions.transaction_machine import Refusal, Refused
from cordwood.log.transactions.transaction_metadata import ProducerIdentity
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_request
from cordwood.quantities import ProducerId
from fakes.manual_scheduler import ManualScheduler
from fakes.outbound_answers import answer_body

ME, TWO = 1, 2
A, B = ("orders", 0), ("orders", 1)
Place = tuple[str, int]


class Bench:
    """A broker that leads partitions. It is its own lookup, its peers and its coordinator."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler()
        self.coordinator: int | None = TWO
        self.verifies = True
        self.sent: list[tuple[int, OutboundCall]] = []
        self.asked_here: list[tuple[str, AbstractSet[Place], Callable[[Outcome], None]]] = []
        self.verification = TransactionVerification(
            self.scheduler,
            self,  # type: ignore[arg-type]
            self,
            node_id=ME,
            local=self,
            is_verifying=lambda: self.verifies,
        )

    def coordinator_of(self, transactional_id: str) -> int | None:
        return self.coordinator

    def send(self, node_id: int, call: OutboundCall) -> None:
        self.sent.append((node_id, call))

    def begin_append(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[Place],
        *,
        client_version: int,
        done: Callable[[Outcome], None],
    ) -> None:
        self.asked_here.append((transactional_id, partitions, done))

    # --- what a test does --------------------------------------------------------------------

    def ask(
        self, *places: Place, name: str = "billing", epoch: int = 0, version: int = 2
    ) -> list[Outcome]:
        outcomes: list[Outcome] = []
        self.verification.begin_append(
            name,
            ProducerIdentity(producer_id=ProducerId(7), epoch=epoch),
            set(places),
            client_version=version,
            done=outcomes.append,
        )
        self.scheduler.run_ready()
        return outcomes

    def request(self, index: int = -1) -> Any:
        return decode_request(
            ApiKey.ADD_PARTITIONS_TO_TXN, 5, memoryview(self.sent[index][1].encode(5))
        )

    def answer(self, code: ErrorCode = ErrorCode.none, *, top: ErrorCode = ErrorCode.none) -> None:
        request = self.request()
        body = answer_body(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            5,
            {
                "error_code": top,
                "results_by_transaction": [
                    {
                        "transactional_id": transaction.transactional_id,
                        "topic_results": [
                            {
                                "name": topic.name,
                                "results_by_partition": [
                                    {"partition_index": number, "partition_error_code": code}
                                    for number in topic.partitions
                                ],
                            }
                            for topic in transaction.topics
                        ],
                    }
                    for transaction in request.transactions
                ],
            },
        )
        self.sent[-1][1].when_done(OutboundAnswer(5, body))
        self.scheduler.run_ready()


def granted(outcomes: list[Outcome]) -> bool:
    return len(outcomes) == 1 and isinstance(outcomes[0], Granted)


def test_the_coordinator_of_this_broker_is_asked_directly() -> None:
    bench = Bench()
    bench.coordinator = ME

    outcomes = bench.ask(A)
    name, partitions, done = bench.asked_here[0]
    done(Granted(identity=ProducerIdentity(producer_id=ProducerId(7), epoch=0)))

    assert (name, partitions) == ("billing", {A})
    assert bench.sent == []
    assert granted(outcomes)


def test_version_2_adds_partitions_and_version_1_only_looks() -> None:
    bench = Bench()

    bench.ask(A, version=2)
    is_looking = [bench.request().transactions[0].verify_only]
    bench.answer()
    bench.ask(A, version=0)
    is_looking.append(bench.request().transactions[0].verify_only)

    assert is_looking == [False, True]
    assert bench.sent[0][0] == TWO


def test_without_the_setting_version_1_is_not_verified() -> None:
    bench = Bench()
    bench.verifies = False

    assert granted(bench.ask(A, version=0))
    assert bench.sent == []


def test_questions_that_wait_for_a_broker_are_asked_together() -> None:
    bench = Bench()
    first = bench.ask(A)

    second = [bench.ask(A, name="x"), bench.ask(A, name="y"), bench.ask(B, name="y")]
    other_epoch = bench.ask(B, name="y", epoch=1)
    bench.answer()

    assert granted(first)
    request = bench.request()
    assert {t.transactional_id: len(t.topics[0].partitions) for t in request.transactions} == {
        "x": 1,
        "y": 2,
    }
    bench.answer()
    assert all(map(granted, second))
    assert other_epoch == []
    bench.answer()
    assert granted(other_epoch)


def test_a_transaction_that_is_being_completed_makes_the_producer_wait_not_fail() -> None:
    bench = Bench()
    outcomes = bench.ask(A)

    for _ in range(5):
        bench.answer(ErrorCode.concurrent_transactions)
        bench.scheduler.advance(0.03)
    bench.answer()

    assert granted(outcomes)
    assert len(bench.sent) == 6


def test_a_coordinator_that_moved_is_looked_up_again() -> None:
    bench = Bench()
    outcomes = bench.ask(A)

    bench.coordinator = ME
    bench.answer(ErrorCode.not_coordinator)
    bench.scheduler.advance(1)
    bench.asked_here[0][2](Refused(Refusal.COORDINATOR_LOAD_IN_PROGRESS))
    bench.scheduler.advance(1)
    bench.asked_here[1][2](Granted(identity=ProducerIdentity(producer_id=ProducerId(7), epoch=0)))

    assert granted(outcomes)


def test_a_broker_that_cannot_be_reached_is_asked_again_for_a_while() -> None:
    bench = Bench()
    outcomes = bench.ask(A)

    while not outcomes:
        bench.sent[-1][1].when_done(BrokerUnreachableError("broker 2", "it is down"))
        bench.scheduler.advance(0.6)

    assert outcomes == [Refused(Refusal.COORDINATOR_NOT_AVAILABLE)]
    assert 10 < len(bench.sent) < 30
    assert 10 <= bench.scheduler.now_s() < 12


def test_without_a_coordinator_a_question_waits_for_one() -> None:
    bench = Bench()
    bench.coordinator = None
    outcomes = bench.ask(A)

    bench.scheduler.advance(3)
    bench.coordinator = TWO
    bench.scheduler.advance(1)
    bench.answer()

    assert granted(outcomes)


def test_a_refusal_that_stays_is_told_at_once() -> None:
    refused = {
        ErrorCode.invalid_producer_epoch: Refusal.PRODUCER_FENCED,
        ErrorCode.producer_fenced: Refusal.PRODUCER_FENCED,
        ErrorCode.transaction_abortable: Refusal.TRANSACTION_ABORTABLE,
        ErrorCode.invalid_producer_id_mapping: Refusal.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.invalid_txn_state: Refusal.INVALID_TXN_STATE,
    }
    for code, reason in refused.items():
        bench = Bench()
        outcomes = bench.ask(A)

        bench.answer(code)

        assert outcomes == [Refused(reason)]


def test_brokers_that_do_not_trust_each_other_are_not_asked_again() -> None:
    bench = Bench()
    outcomes = bench.ask(A)

    bench.answer(top=ErrorCode.cluster_authorization_failed)

    assert outcomes == [Refused(Refusal.INVALID_TXN_STATE)]
