"""Commits a transaction by its marker alone: one sync, and no record of the coordinator.

A *lone* transaction has records in one partition, all of one producer of the library, and no
offsets of groups. Its records and its marker are in one log, in this order, and recovery keeps a
prefix of a log. So whatever a crash leaves of them is whole: with the marker, all records; without
it, a transaction that is open, which recovery ends as ever. Nothing has to be decided elsewhere.

    1  records in p    written, not synced
    2  a marker in p   written; it ends the transaction for readers and has the next epoch
    3  p               synced: this is the commit. The caller is answered now
    4  CompleteCommit  written within about a second, never before 3

Invariant: the epoch of an id in memory is never below what a log has of its producer, and what is
on the disk may be below only because of lone transactions. A start raises it again from the logs
(`transaction_machine.raised`), before anyone is given an epoch.

    a crash after   is found as                                     and then
    1               records that no record of the id covers         goes on (`reconciliation`)
    2               all of it, or a part of it without the marker   as after 3, or as after 1
    3               a marker with a later epoch than the id has     the id is raised to it
    4               CompleteCommit                                  nothing

While the marker is written, a lease keeps all others out of the log: whoever takes the id away
meanwhile gets its own marker in behind this one, where it ends nothing. Commit comes first.

The general way is taken by all other transactions: several partitions, offsets, an abort, a client,
a topic that another broker wrote, the last epoch of a producer id, a log that is held.
"""

from typing import Final

from cordwood.clock import Clock
from cordwood.errors import (
    CordwoodError,
    InvalidProducerEpochError,
    LogHeldError,
    TransactionCoordinatorFencedError,
    UnverifiedTransactionError,
)
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.interruption import insist
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.transactions.transaction_entry import Lease, TransactionEntry
from cordwood.log.transactions.transaction_metadata import (
    EPOCH_BUMPING_VERSION,
    ProducerIdentity,
    TransactionMetadata,
)
from cordwood.log.transactions.transaction_table import TransactionTable
from cordwood.log.transactions.transaction_work import LocalWork
from cordwood.quantities import Offset

# A log refuses the marker before it writes anything.
_NOT_WRITTEN: Final = (
    InvalidProducerEpochError,
    LogHeldError,
    TransactionCoordinatorFencedError,
    UnverifiedTransactionError,
)


class LoneCommit:
    """One commit by a marker. For one thread.

    end    where the log must be durable; None: no marker is in the log
    after  what the producer uses next; None: another one asked for its id meanwhile
    """

    __slots__ = ("_clock", "_entry", "_log", "_metadata", "_table", "after", "end")

    def __init__(self, table: TransactionTable[LocalWork], clock: Clock, log: PartitionLog) -> None:
        self._table = table
        self._clock = clock
        self._log = log
        self._entry: TransactionEntry | None = None
        self._metadata: TransactionMetadata | None = None
        self.end: Offset | None = None
        self.after: ProducerIdentity | None = None

    def write(self, transactional_id: str, producer: ProducerIdentity, leases: list[Lease]) -> bool:
        """Write the marker, if it may be the commit. False: the transaction is as it was.

        The caller then waits until the log keeps its promise below `end`. After an interrupt,
        `end` says whether the marker is in the log. The caller releases `leases` in any case.
        """
        log = self._log
        leased = self._table.lease_end(
            transactional_id, producer, (log.topic, log.partition), leases
        )
        if leased is None:
            return False
        self._entry, self._metadata = leased
        try:
            self._append(producer)
        except _NOT_WRITTEN:
            return False
        except (CordwoodError, OSError):
            insist(lambda: self._look(producer))
        except BaseException:
            insist(lambda: self._look(producer))
            raise
        return self.end is not None  # else the general way finds out, and says why

    def _append(self, producer: ProducerIdentity) -> None:
        log = self._log
        marker = MarkerFacts(
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch + 1,
            coordinator_epoch=self._table.coordinator_epoch,
            offset=log.end_offset,
            timestamp=self._clock.now_ms(),
            is_abort=False,
        )
        at = log.batches.end_transaction(
            marker,
            transaction_version=EPOCH_BUMPING_VERSION,
            wait=False,
            is_patient=False,
            begun_in=producer.epoch,
        )
        self._note(Offset(at + 1))

    def _look(self, producer: ProducerIdentity) -> None:
        """Nobody knows how far `_append` came: the log does."""
        log = self._log
        if self.end is None and not log.producers.is_in_transaction(
            producer.producer_id, producer.epoch
        ):
            self._note(log.end_offset)

    def _note(self, end: Offset) -> None:
        assert self._entry is not None
        assert self._metadata is not None
        after = self._table.committed_alone(self._entry, self._metadata, self._log, end)
        self.after, self.end = after or self.after, end
