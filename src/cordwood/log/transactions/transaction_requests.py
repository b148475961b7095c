"""The requests of producers about their transactions, as questions to a table of transactions.

Who has the table depends: the store that is alone has one (`coordinator`), a member of a cluster
has one for each partition of the topic that it leads.
"""

from collections.abc import Callable
from collections.abc import Set as AbstractSet
from typing import Final, Protocol

from cordwood.clock import Clock
from cordwood.format.transaction_records import TopicPartition
from cordwood.log.transactions.transaction_config import TransactionConfig
from cordwood.log.transactions.transaction_entry import Ask, Decide, Done
from cordwood.log.transactions.transaction_machine import (
    Decision,
    Refusal,
    Refused,
    Unchanged,
    decide_add,
    decide_end,
    decide_fence,
    decide_init,
    decide_verification,
    is_timed_out,
)
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
    TransactionMetadata,
)
from cordwood.quantities import ProducerId, TimestampMs

WAIT_S: Final = 30.0  # clients give up a request after 30 s or more


class CoordinatedTransactions(Protocol):
    """The transactional ids that are coordinated here. Any thread may look."""

    def find(self, transactional_id: str) -> TransactionMetadata | None:
        """The state of an id. A prepared transaction has only the partitions without a marker."""
        ...

    def all(self) -> list[TransactionMetadata]:
        """The state of all ids, in order."""
        ...

    def refusal(self, transactional_id: str) -> Refusal | None:
        """Why this broker does not coordinate an id; None if it does."""
        ...

    @property
    def is_loading(self) -> bool:
        """Whether ids are missing in `all` that are about to be there."""
        ...

    @property
    def unwritten_count(self) -> int:
        """Partitions that have no marker yet because the last try failed."""
        ...

    @property
    def failure_count(self) -> int:
        """Tries to write a marker that failed, since the start."""
        ...


class TransactionRequests:
    """Asks `proceed`. Any thread may call it; nothing waits for the disk.

    Answers come through `done`, at once in the caller's thread or later in another one. `done`
    must return at once. `config` may be replaced at any time. A request that `gives_up` is refused
    if markers that it waits for cannot be written now; others wait for the next tries.
    """

    def __init__(
        self, proceed: Callable[[Ask], None], clock: Clock, *, has_leases: bool = True
    ) -> None:
        """Without leases, the logs guard what they were allowed: see `VerificationGuard`."""
        self.config = TransactionConfig()
        self._proceed = proceed
        self._clock = clock
        self._has_leases = has_leases

    def init_producer(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        expected: ProducerIdentity | None,
        done: Done,
        gives_up: bool = False,
    ) -> None:
        """Give a producer its id and epoch, after the transaction of an earlier one is aborted."""
        if not 0 < timeout_ms <= self.config.max_timeout_ms:
            done(Refused(Refusal.INVALID_TRANSACTION_TIMEOUT))
            return
        self._ask(
            transactional_id,
            lambda current, now_ms, fresh_id: decide_init(
                current,
                transactional_id,
                expected=expected,
                timeout_ms=timeout_ms,
                now_ms=now_ms,
                fresh_id=fresh_id,
            ),
            done,
            gives_up=gives_up,
        )

    def add_partitions(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: int,
        done: Done,
        is_brief: bool = False,
    ) -> None:
        """Make partitions part of the transaction, which begins if it has not.

        If it `is_brief`, it is refused while a transaction is being completed, and does not wait.
        """
        self._ask(
            transactional_id,
            lambda current, now_ms, _: decide_add(
                current, producer, partitions, client_version=client_version, now_ms=now_ms
            ),
            done,
            is_brief=is_brief,
        )

    def begin_append(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: int,
        done: Done,
        verify_only: bool = False,
        gives_up: bool = False,
        is_brief: bool = False,
    ) -> None:
        """Allow an append to partitions. `done` gets a lease, to be released after the append.

        Clients of version 2 add the partitions by it; older ones must have added them before. If it
        `is_brief`, it is refused while a transaction is being completed, and does not wait.
        """
        decide = self._decide_append(
            producer, partitions, client_version=client_version, verify_only=verify_only
        )
        self._ask(
            transactional_id,
            decide,
            done,
            takes_lease=self._has_leases,
            gives_up=gives_up,
            is_brief=is_brief,
        )

    def _decide_append(
        self,
        producer: ProducerIdentity,
        partitions: AbstractSet[TopicPartition],
        *,
        client_version: int,
        verify_only: bool = False,
    ) -> Decide:
        adds = not verify_only and (
            client_version >= EPOCH_BUMPING_VERSION or not self.config.verifies_partitions
        )

        if adds:
            return lambda current, now_ms, _: decide_add(
                current, producer, partitions, client_version=client_version, now_ms=now_ms
            )
        return lambda current, _now, _id: decide_verification(current, producer, partitions)

    def end(
        self,
        transactional_id: str,
        producer: ProducerIdentity,
        *,
        is_commit: bool,
        client_version: int,
        done: Done,
        is_thorough: bool = False,
    ) -> None:
        """Commit or abort. `done` is called when the decision is durable, before the markers.

        If it `is_thorough`, `done` is called after the markers. Then a refusal does not say that
        nothing was decided: the markers may have failed.
        """
        self._ask(
            transactional_id,
            lambda current, now_ms, fresh_id: decide_end(
                current,
                producer,
                is_commit=is_commit,
                client_version=client_version,
                now_ms=now_ms,
                fresh_id=fresh_id,
            ),
            done,
            gives_up=is_thorough,
            is_thorough=is_thorough,
        )

    def abort(self, transactional_id: str, done: Done) -> None:
        """Abort the open transaction of an id and fence its producer."""
        self._ask(transactional_id, _decide_abort, done, is_fencing=True)

    def abort_late(self, transactional_id: str, done: Done) -> None:
        """Abort the transaction of an id if it is open for longer than its producer said."""
        self._ask(transactional_id, _decide_time_out, done, is_fencing=True)

    def settle(self, transactional_id: str, done: Done) -> None:
        """Call `done` once no transaction of the id is being completed, or its markers fail."""

        def decide(
            current: TransactionMetadata | None, _now: TimestampMs, _id: ProducerId | None
        ) -> Decision:
            if current is None:
                return Refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
            if current.is_prepared:
                return Refused(Refusal.CONCURRENT_TRANSACTIONS)
            return Unchanged(current.identity)

        self._ask(transactional_id, decide, done, gives_up=True)

    def _ask(
        self,
        transactional_id: str,
        decide: Decide,
        done: Done,
        *,
        takes_lease: bool = False,
        is_fencing: bool = False,
        gives_up: bool = False,
        is_brief: bool = False,
        is_thorough: bool = False,
    ) -> None:
        ask = Ask(
            transactional_id=transactional_id,
            decide=decide,
            done=done,
            deadline_s=self._clock.monotonic() + WAIT_S,
            takes_lease=takes_lease,
            is_fencing=is_fencing,
            gives_up=gives_up,
            is_brief=is_brief,
            is_thorough=is_thorough,
        )
        self._proceed(ask)


def _decide_abort(
    current: TransactionMetadata | None, now_ms: TimestampMs, fresh_id: ProducerId | None
) -> Decision:
    if current is None:
        return Refused(Refusal.INVALID_PRODUCER_ID_MAPPING)
    return decide_fence(current, now_ms=now_ms, fresh_id=fresh_id)


def _decide_time_out(
    current: TransactionMetadata | None, now_ms: TimestampMs, fresh_id: ProducerId | None
) -> Decision:
    if current is None or not is_timed_out(current, now_ms=now_ms):
        return Refused(Refusal.INVALID_TXN_STATE)
    return decide_fence(current, now_ms=now_ms, fresh_id=fresh_id)
