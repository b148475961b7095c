"""Any order of requests, retries, time-outs and restarts: decisions stand, epochs never go back."""

from __future__ import annotations

import itertools

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from cordwood.format.transaction_records import (
    TransactionState,
    decode_transaction_value,
    encode_transaction_value,
)
from cordwood.log.transactions.transaction_machine import (
    Change,
    Decision,
    NeedsProducerId,
    Unchanged,
    completed,
    decide_add,
    decide_end,
    decide_fence,
    decide_init,
)
from cordwood.log.transactions.transaction_metadata import ProducerIdentity, TransactionMetadata
from cordwood.quantities import ProducerId, TimestampMs

PLACES = [("orders", 0), ("orders", 1), ("paid", 0)]


class TransactionMachine(RuleBasedStateMachine):
    """One transactional id, one current producer and all its earlier selves."""

    def __init__(self) -> None:
        super().__init__()
        self.current: TransactionMetadata | None = None
        self.ids = itertools.count(1)
        self.now = 0
        self.known: list[ProducerIdentity] = []  # every identity that a client ever got
        self.written: list[TransactionMetadata] = []
        self.decided: dict[tuple[int, int], bool] = {}  # (producer id, prepared epoch) -> commit

    def decide(self, decision: Decision) -> None:
        self.now += 1
        if isinstance(decision, Change):
            self.write(decision.new)

    def write(self, new: TransactionMetadata) -> None:
        # What is not in the record does not survive: now and then the broker restarts in between.
        encoded = encode_transaction_value(new.to_record())
        assert decode_transaction_value(encoded) == new.to_record()
        self.written.append(new)
        self.current = new
        if new.is_prepared:
            key = (new.producer_id, new.epoch)
            is_commit = new.state is TransactionState.PREPARE_COMMIT
            if new.bumps_epochs:
                assert key not in self.decided, "a decision for an epoch is made once"
            self.decided[key] = is_commit

    def time(self) -> TimestampMs:
        return TimestampMs(self.now)

    def fresh(self) -> ProducerId:
        return ProducerId(next(self.ids))

    @rule(continues=st.booleans(), data=st.data())
    def init(self, continues: bool, data: st.DataObject) -> None:
        expected = None
        if continues and self.known:
            expected = data.draw(st.sampled_from(self.known))
        fresh: ProducerId | None = None
        while True:
            decision = decide_init(
                self.current,
                "id",
                expected=expected,
                timeout_ms=100,
                now_ms=self.time(),
                fresh_id=fresh,
            )
            if not isinstance(decision, NeedsProducerId):
                break
            fresh = self.fresh()
        before = self.current
        self.decide(decision)
        if isinstance(decision, Change) and not decision.is_fence:
            assert before is None or not before.is_prepared
            assert before is None or before.state is not TransactionState.ONGOING
            self.known.append(decision.new.identity)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), version=st.sampled_from([0, 2]))
    def add(self, data: st.DataObject, version: int) -> None:
        producer = data.draw(st.sampled_from(self.known[-3:]))
        place = data.draw(st.sampled_from(PLACES))
        decision = decide_add(
            self.current, producer, {place}, client_version=version, now_ms=self.time()
        )
        if isinstance(decision, Change | Unchanged):
            assert self.current is not None
            assert self.current.identity == producer, "only the current producer adds"
            assert not self.current.is_prepared
        self.decide(decision)

    @precondition(lambda self: self.known)
    @rule(data=st.data(), commit=st.booleans(), version=st.sampled_from([1, 2]))
    def end(self, data: st.DataObject, commit: bool, version: int) -> None:
        producer = data.draw(st.sampled_from(self.known[-3:]))
        before = self.current
        fresh: ProducerId | None = None
        while True:
            decision = decide_end(
                self.current,
                producer,
                is_commit=commit,
                client_version=version,
                now_ms=self.time(),
                fresh_id=fresh,
            )
            if not isinstance(decision, NeedsProducerId):
                break
            fresh = self.fresh()
        self.decide(decision)
        if isinstance(decision, Change):
            assert before is not None
            assert before.identity == producer
            if commit:
                assert before.state is TransactionState.ONGOING
            self.known.append(decision.new.identity_after_end)
        elif isinstance(decision, Unchanged):
            assert before is not None
            expected = TransactionState.COMPLETE_COMMIT if commit else (
                TransactionState.COMPLETE_ABORT
            )  # fmt: skip
            assert before.state is expected, "never a commit after an abort, or the reverse"

    @precondition(lambda self: self.current and self.current.state is TransactionState.ONGOING)
    @rule()
    def time_out(self) -> None:
        assert self.current is not None
        decision = decide_fence(self.current, now_ms=self.time(), fresh_id=self.fresh())
        assert isinstance(decision, Change)
        self.decide(decision)

    @precondition(lambda self: self.current and self.current.is_prepared)
    @rule()
    def complete(self) -> None:
        assert self.current is not None
        decision = self.decided[self.current.producer_id, self.current.epoch]
        self.now += 1
        self.write(completed(self.current, now_ms=self.time()))
        assert self.current.is_complete
        is_commit = self.current.state is TransactionState.COMPLETE_COMMIT
        assert is_commit is decision, "what was prepared is what is completed"

    @precondition(lambda self: self.current)
    @rule()
    def restart(self) -> None:
        assert self.current is not None
        self.current = TransactionMetadata.of_record("id", self.current.to_record())

    @precondition(lambda self: self.current and not self.current.is_prepared)
    @rule()
    def use_up_epochs(self) -> None:
        """As 32,000 transactions would."""
        assert self.current is not None
        if self.current.epoch < 32_700:
            state = self.current.state
            self.current = TransactionMetadata.of_record(
                "id",
                TransactionMetadata(
                    transactional_id="id",
                    producer_id=self.current.producer_id,
                    epoch=32_764,
                    timeout_ms=100,
                    state=state,
                    partitions=self.current.partitions,
                    start_ms=self.current.start_ms,
                    last_update_ms=self.current.last_update_ms,
                    client_version=self.current.client_version,
                    previous_producer_id=self.current.producer_id,
                ).to_record(),
            )
            self.known.append(self.current.identity)
            self.written.append(self.current)

    @invariant()
    def epochs_are_monotonic(self) -> None:
        seen: dict[int, int] = {}
        last_id = 0
        for metadata in self.written[-20:]:
            assert metadata.producer_id >= last_id, "an old producer id never comes back"
            last_id = metadata.producer_id
            assert metadata.epoch >= seen.get(metadata.producer_id, 0)
            seen[metadata.producer_id] = metadata.epoch

    @invariant()
    def clients_never_get_the_last_epoch(self) -> None:
        assert all(identity.epoch <= 32_766 for identity in self.known)

    @invariant()
    def partitions_are_there_exactly_while_a_transaction_is_open(self) -> None:
        if self.current is None:
            return
        if self.current.state is TransactionState.ONGOING:
            assert self.current.partitions
            assert self.current.start_ms >= 0
        elif not self.current.is_prepared:
            assert not self.current.partitions


TestTransactionMachine = TransactionMachine.TestCase
