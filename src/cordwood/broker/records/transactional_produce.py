"""Produce into a transaction: what must be asked of the coordinator before the records go in.

A log lets a producer go on in a transaction that is open there. To begin one, the coordinator must
agree: clients of version 2 add the partition by it, older ones must have added it before
(KIP-890). Until the records are in, the coordinator keeps the transaction open, by a lease. In a
cluster it may be on another broker. Then the log has a guard, which the marker of a transaction
that ends meanwhile takes away.

Where the transaction before is still being completed, the request waits for that.
"""

import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import Final, Protocol

from cordwood.broker.error_codes import transaction_code
from cordwood.broker.net.loop.event_loop import EventLoop
from cordwood.format.batch_header import HEADER_SIZE, MAGIC, TRANSACTIONAL, decode_batch_header
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import VerificationGuard
from cordwood.log.rules.transaction_rules import TransactionRules
from cordwood.log.transactions.transaction_entry import Done, Granted, Lease, Outcome
from cordwood.log.transactions.transaction_machine import Refused
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
)
from cordwood.protocol.error_code import ErrorCode
from cordwood.protocol.produce_request import ProducedRecords

_FIRST_WITH_ABORTABLE: Final = 11
_FIRST_ADDING: Final = 12  # from here on a produce adds its partitions to the transaction
_MAGIC_AT: Final = 16
_ATTRIBUTES_AT: Final = 22  # their lower byte, in a batch
_RETRIED: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
    }
)


def client_version_of(api_version: int) -> int:
    return EPOCH_BUMPING_VERSION if api_version >= _FIRST_ADDING else 0


def has_transactional(parts: Iterable[ProducedRecords]) -> bool:
    return any(is_transactional(records) for _, _, records in parts)


def is_transactional(records: memoryview) -> bool:
    """Whether it is a batch with that attribute; False for anything that is no batch."""
    return (
        len(records) >= HEADER_SIZE
        and records[_MAGIC_AT] == MAGIC
        and bool(records[_ATTRIBUTES_AT] & TRANSACTIONAL)
    )


def first_sequence(records: memoryview) -> int:
    """The sequence of the first record of a batch, for which `is_transactional` holds."""
    return decode_batch_header(records).base_sequence


def producer_of(
    transactional_id: str | None, parts: Iterable[ProducedRecords]
) -> ProducerIdentity | ErrorCode:
    """The producer of all transactional batches, or why the request is refused as a whole."""
    if not transactional_id:
        return ErrorCode.transactional_id_authorization_failed
    producers = {
        (header.producer_id, header.producer_epoch)
        for _, _, records in parts
        if is_transactional(records)
        for header in (decode_batch_header(records),)
    }
    if len(producers) != 1:
        return ErrorCode.invalid_producer_id_mapping
    [(producer_id, epoch)] = producers
    return ProducerIdentity(producer_id=producer_id, epoch=epoch)


# Logs in which a transaction is to begin; in a cluster, with their guards.
Beginnings = Mapping[PartitionLog, VerificationGuard | None]


class VerifiesTransactions(Protocol):
    """Asks the coordinator of a transaction, here or on another broker. Any thread."""

    def begin_append(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[tuple[str, int]],
        *,
        client_version: int,
        done: Done,
    ) -> None: ...


class Admission:
    """What the coordinator said about one request. Belongs to the request.

    `begins` are the logs in which the transaction may begin; `refused` is why it may not in the
    others that it is not open in.
    """

    __slots__ = ("_lease", "begins", "code", "refused", "starts_at_zero")

    def __init__(
        self,
        *,
        api_version: int,
        begins: Beginnings = MappingProxyType({}),
        outcome: Outcome | None = None,
    ) -> None:
        self._lease: Lease | None = outcome.lease if isinstance(outcome, Granted) else None
        self.code = ErrorCode.none
        self.begins = begins
        self.refused: Collection[PartitionLog] = ()
        self.starts_at_zero = api_version >= _FIRST_ADDING
        if isinstance(outcome, Refused):
            self.code = _code(outcome, api_version)
            self.begins, self.refused = {}, begins

    def rules_for(self, log: PartitionLog) -> TransactionRules:
        return TransactionRules(
            may_begin=log in self.begins,
            starts_at_zero=self.starts_at_zero,
            guard=self.begins.get(log),
        )

    def release(self) -> None:
        """The records are in their logs. Any thread."""
        if self._lease is not None:
            self._lease.release()


def _code(outcome: Refused, api_version: int) -> ErrorCode:
    """How a refusal of the coordinator is called in this API."""
    code = transaction_code(outcome.reason, knows_fencing=False)
    if code is ErrorCode.transaction_abortable and api_version < _FIRST_WITH_ABORTABLE:
        return ErrorCode.invalid_txn_state
    if code in _RETRIED:
        return ErrorCode.not_enough_replicas  # clients retry it without looking for a leader
    if code is ErrorCode.concurrent_transactions and api_version < _FIRST_ADDING:
        return ErrorCode.not_enough_replicas
    return code


class Verification:
    """Waits for the coordinator, in a loop that must not block."""

    def __init__(self, loop: EventLoop) -> None:
        self._loop = loop
        self._lock = threading.Lock()
        self._outcome: Outcome | None = None
        self._resume: Callable[[Outcome], None] | None = None

    def done(self, outcome: Outcome) -> None:
        """The coordinator has answered. Any thread."""
        with self._lock:
            self._outcome = outcome
            resume = self._resume
        if resume is not None:
            self._loop.call_soon(lambda: resume(outcome))

    def take(self, resume: Callable[[], Callable[[Outcome], None]]) -> Outcome | None:
        """The answer, if it is there; otherwise None, and `resume()` is called with it later.

        `resume` itself is called now: to keep what must be kept meanwhile.
        """
        with self._lock:
            outcome = self._outcome
        if outcome is not None:
            return outcome
        function = resume()
        with self._lock:
            outcome = self._outcome
            if outcome is None:
                self._resume = function
        if outcome is not None:
            function(outcome)
        return None
