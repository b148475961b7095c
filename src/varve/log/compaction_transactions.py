"""Which batches of a log belong to aborted transactions, told while walking over it in order.

Aborted data goes at once. The marker that ends a transaction must outlive all its data: a reader
that meets data without its end takes it for undecided, or for committed. So a marker may go only
after a walk that met no batch of its transaction, and then only in its own time, like a tombstone.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from varve.format.batch import BatchInfo
from varve.format.batch_header import TRANSACTIONAL
from varve.format.control_record import ControlType, decode_control_key
from varve.format.index_entry import AbortedTransaction


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    has_batches: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerFate:
    """What a walk knows of a control batch when it gets there.

    is_spent  nothing is left that needs it
    aborted   what the transaction index must go on saying
    """

    is_spent: bool
    aborted: AbortedTransaction | None = None


class TransactionWalk:
    """Follows the transactions of a log. Feed it every batch, in order."""

    def __init__(self, aborted: Iterable[AbortedTransaction]) -> None:
        """`aborted` are all that have records in the range, in the order they began."""
        self._ahead = deque(aborted)
        self._ongoing: dict[int, _Aborted] = {}
        self._committed: set[int] = set()

    def is_aborted(self, batch: BatchInfo) -> bool:
        """Whether a data batch belongs to an aborted transaction."""
        if not batch.attributes & TRANSACTIONAL:
            return False
        self._begin_up_to(batch.next_offset)
        found = self._ongoing.get(batch.producer_id)
        if found is None:
            self._committed.add(batch.producer_id)
            return False
        found.has_batches = True
        return True

    def meet_control(self, batch: BatchInfo, key: bytes | None) -> MarkerFate:
        """A control batch; `key` is that of its record, None when it has none any more."""
        self._begin_up_to(batch.next_offset)
        if key is None:
            return MarkerFate(is_spent=True)
        kind = decode_control_key(key).type
        if kind is ControlType.ABORT:
            ended = self._ongoing.pop(batch.producer_id, None)
            if ended is not None and ended.has_batches:
                return MarkerFate(is_spent=False, aborted=ended.transaction)
            return MarkerFate(is_spent=True)
        if kind is ControlType.COMMIT:
            is_spent = batch.producer_id not in self._committed
            self._committed.discard(batch.producer_id)
            return MarkerFate(is_spent=is_spent)
        return MarkerFate(is_spent=False)

    def _begin_up_to(self, next_offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset < next_offset:
            transaction = self._ahead.popleft()
            self._ongoing.setdefault(transaction.producer_id, _Aborted(transaction))
