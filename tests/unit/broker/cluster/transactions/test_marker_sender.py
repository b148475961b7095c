"""Markers find the leaders of their partitions, whatever happens to the leaders meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cordwood.broker.cluster.transactions.marker_sender import MarkerSender
from cordwood.broker.net.outbound.outbound_call import OutboundAnswer, OutboundCall
from cordwood.errors import BrokerUnreachableError
from cordwood.format.transaction_records import TransactionState
from cordwood.log.transactions.marker_writer import MarkerRound, WantedMarker, markers_of
from cordwood.log.transactions.transaction_entry import TransactionEntry
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.protocol.api_catalog import ApiKey
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.messages import decode_request
from cordwood.quantities import ProducerId, TimestampMs
from fakes.manual_scheduler import ManualScheduler
from fakes.outbound_answers import answer_body

ME, TWO, THREE = 1, 2, 3
A, B, C = ("orders", 0), ("orders", 1), ("paid", 0)
Place = tuple[str, int]


class Bench:
    """A cluster as the sender sees it. It is its own lookup, its peers and its table."""

    def __init__(self) -> None:
        self.scheduler = ManualScheduler()
        self.leaders: dict[Place, int | None] = {A: TWO, B: TWO, C: THREE}
        self.sent: list[tuple[int, OutboundCall]] = []
        self.here: list[WantedMarker] = []
        self.code_here = ErrorCode.none
        self.marked_places: list[Place] = []
        self.is_closed = False
        self.sender = MarkerSender(
            self.scheduler,
            self,  # type: ignore[arg-type]
            self,
            node_id=ME,
            write_here=self._write_here,
        )

    def is_known(self, place: Place) -> bool:
        return place in self.leaders

    def leader_of(self, place: Place) -> int | None:
        return self.leaders.get(place)

    def send(self, node_id: int, call: OutboundCall) -> None:
        self.sent.append((node_id, call))

    def _write_here(
        self,
        markers: Sequence[WantedMarker],
        done: Callable[[Sequence[ErrorCode]], object],
    ) -> None:
        self.here += markers
        done([self.code_here] * len(markers))

    def unmarked(self, entries: Iterable[TransactionEntry]) -> list[MarkerRound]:
        return [
            MarkerRound(
                entry=entry,
                metadata=entry.metadata,
                wanted=markers_of(entry.metadata, entry.unmarked, 5),
            )
            for entry in entries
            if entry.metadata is not None
        ]

    def marked(self, each: MarkerRound, places: frozenset[Place]) -> None:
        self.marked_places += sorted(places)

    # --- what a test does --------------------------------------------------------------------

    def end(self, *places: Place, producer: int = 7) -> None:
        metadata = TransactionMetadata(
            transactional_id=f"id-{producer}",
            producer_id=ProducerId(producer),
            epoch=3,
            timeout_ms=60_000,
            state=TransactionState.PREPARE_COMMIT,
            partitions=frozenset(places),
            last_update_ms=TimestampMs(0),
            client_version=2,
        )
        entry = TransactionEntry(metadata)
        entry.unmarked = metadata.partitions
        self.sender.send(self, entry)
        self.scheduler.run_ready()

    def asked(self, index: int = -1) -> tuple[int, dict[int, set[Place]]]:
        """Who was asked, and for which partitions of which producers."""
        node_id, call = self.sent[index]
        request: Any = decode_request(ApiKey.WRITE_TXN_MARKERS, 2, memoryview(call.encode(2)))
        return node_id, {
            marker.producer_id: {
                (topic.name, number)
                for topic in marker.topics
                for number in topic.partition_indexes
            }
            for marker in request.markers
        }

    def answer(self, index: int = -1, **codes: ErrorCode) -> None:
        """Answer a request; `codes` are those of topics, for others all is well."""
        _, call = self.sent[index]
        _, asked = self.asked(index)
        body = answer_body(
            ApiKey.WRITE_TXN_MARKERS,
            2,
            {
                "markers": [
                    {
                        "producer_id": producer,
                        "topics": [
                            {
                                "name": name,
                                "partitions": [
                                    {
                                        "partition_index": number,
                                        "error_code": codes.get(name, ErrorCode.none),
                                    }
                                ],
                            }
                            for name, number in sorted(places)
                        ],
                    }
                    for producer, places in asked.items()
                ]
            },
        )
        call.when_done(OutboundAnswer(2, body))
        self.scheduler.run_ready()


def test_each_leader_gets_one_request_with_all_its_markers() -> None:
    bench = Bench()

    bench.end(A, B, C)

    assert [bench.asked(n) for n in range(2)] == [(TWO, {7: {A, B}}), (THREE, {7: {C}})]
    for index in range(2):
        bench.answer(index)
    assert sorted(bench.marked_places) == [A, B, C]


def test_what_ends_while_a_broker_is_asked_is_sent_with_the_next_request() -> None:
    bench = Bench()
    bench.end(A, producer=7)

    bench.end(A, producer=8)
    bench.end(B, producer=9)
    before = len(bench.sent)
    bench.answer()

    assert before == 1
    assert bench.asked() == (TWO, {8: {A}, 9: {B}})


def test_partitions_that_are_led_here_need_no_request() -> None:
    bench = Bench()
    bench.leaders[A] = ME

    bench.end(A)

    assert [marker.place for marker in bench.here] == [A]
    assert bench.marked_places == [A]
    assert bench.sent == []


def test_a_broker_that_does_not_lead_any_more_makes_the_sender_look_again() -> None:
    bench = Bench()
    bench.end(A, C)

    bench.leaders[A] = THREE
    bench.answer(0, orders=ErrorCode.not_leader_or_follower)
    bench.answer(1)
    bench.scheduler.advance(1)

    assert bench.asked() == (THREE, {7: {A}})
    bench.answer()
    assert sorted(bench.marked_places) == [A, C]


def test_a_broker_that_cannot_be_reached_is_tried_again_and_pauses_grow() -> None:
    bench = Bench()
    bench.end(A)

    for _ in range(6):
        bench.sent[-1][1].when_done(BrokerUnreachableError("broker 2", "it is down"))
        bench.scheduler.advance(1.1)

    assert len(bench.sent) == 7
    assert bench.sender.failure_count == 6
    bench.answer()
    assert bench.marked_places == [A]
    assert bench.sender.unwritten_count == 0


def test_a_request_to_a_broker_that_hangs_does_not_hold_up_its_markers() -> None:
    bench = Bench()
    bench.end(A)
    bench.end(B, producer=8)  # waits for the answer to the first one

    bench.leaders[A] = bench.leaders[B] = THREE  # elected while broker 2 is silent
    bench.sender.look_again()
    bench.scheduler.run_ready()

    assert bench.asked() == (THREE, {7: {A}, 8: {B}})
    bench.answer()
    assert bench.marked_places == [B, A]
    bench.sent[0][1].when_done(BrokerUnreachableError("broker 2", "no answer in time"))
    bench.scheduler.advance(5)
    assert len(bench.sent) == 2


def test_a_partition_without_a_leader_waits_for_one() -> None:
    bench = Bench()
    bench.leaders[A] = None
    bench.end(A)

    bench.scheduler.advance(20)
    bench.leaders[A] = THREE
    bench.scheduler.advance(2)

    assert bench.asked() == (THREE, {7: {A}})


def test_a_partition_that_stays_unknown_was_deleted_and_needs_no_marker() -> None:
    bench = Bench()
    del bench.leaders[A]
    bench.end(A, C)
    bench.answer()

    bench.scheduler.advance(1)
    soon = list(bench.marked_places)
    bench.scheduler.advance(10)

    assert soon == [C]  # this broker may not have heard of it yet
    assert bench.marked_places == [C, A]


def test_a_newer_epoch_in_the_log_says_that_the_marker_was_there() -> None:
    bench = Bench()
    bench.end(A)

    bench.answer(orders=ErrorCode.invalid_producer_epoch)

    assert bench.marked_places == [A]


def test_a_coordinator_that_was_replaced_does_not_count_its_markers_as_written() -> None:
    bench = Bench()
    bench.end(A)

    bench.answer(orders=ErrorCode.transaction_coordinator_fenced)
    bench.scheduler.advance(5)
    before = len(bench.sent)
    bench.is_closed = True  # it was told
    bench.scheduler.advance(60)

    assert bench.marked_places == []
    assert before == len(bench.sent) == 1


def test_a_transaction_without_partitions_is_complete_at_once() -> None:
    bench = Bench()
    completed: list[object] = []
    bench.marked = lambda each, places: completed.append(places)  # type: ignore[method-assign]

    bench.end()

    assert completed == [frozenset()]


def test_garbage_is_no_answer() -> None:
    bench = Bench()
    bench.end(A)

    bench.sent[-1][1].when_done(OutboundAnswer(2, memoryview(b"\xff" * 9)))
    bench.scheduler.advance(1)

    assert bench.marked_places == []
    assert bench.asked() == (TWO, {7: {A}})
