"""Which batches of a log belong to aborted transactions, told while walking over it in order.

Aborted data goes at once. The marker that ends a transaction must outlive all its data: a reader
that meets data without its end takes it for undecided, or for committed. So a marker may go only
after a walk that met no batch of its transaction, and then only in its own time, like a tombstone.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from cordwood.format.batch import BatchInfo
from cordwood.format.batch_header import TRANSACTIONAL
from cordwood.format.control_record import ControlType, decode_control_key
from cordwood.format.index_entry import AbortedTransaction


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


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkState:
    """What a walk knows where one part of a log ends and the next begins.

    committed  producers with data of a transaction that is not aborted, and not over yet
    met        producer and first offset of each aborted transaction whose batches were met
    """

    committed: frozenset[int] = frozenset()
    met: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkEffect:
    """What a walk over one part, begun without knowing of those before it, found out.

    ended   producers whose commits it met: what they had before that is over
    state   what it knew at its end
    """

    ended: frozenset[int]
    state: WalkState

    def after(self, before: WalkState) -> WalkState:
        """What a walk over both, the parts before and this one, knows at its end."""
        return WalkState(
            committed=(before.committed - self.ended) | self.state.committed,
            met=before.met | self.state.met,
        )


class TransactionWalk:
    """Follows the transactions of a log, or a part of one. Feed it every batch, in order."""

    def __init__(
        self, aborted: Iterable[AbortedTransaction], before: WalkState | None = None
    ) -> None:
        """`aborted` are all that have records in the range, in the order they began."""
        before = before or WalkState()
        self._ahead = deque(aborted)
        self._ongoing: dict[int, _Aborted] = {}
        self._committed = set(before.committed)
        self._met_before = before.met
        self._ended: set[int] = set()

    @property
    def effect(self) -> WalkEffect:
        """What it has found out so far."""
        return WalkEffect(
            ended=frozenset(self._ended),
            state=WalkState(
                committed=frozenset(self._committed),
                met=frozenset(
                    (producer_id, found.transaction.first_offset)
                    for producer_id, found in self._ongoing.items()
                    if found.has_batches
                ),
            ),
        )

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
            self._ended.add(batch.producer_id)
            return MarkerFate(is_spent=is_spent)
        return MarkerFate(is_spent=False)

    def _begin_up_to(self, next_offset: int) -> None:
        while self._ahead and self._ahead[0].first_offset < next_offset:
            transaction = self._ahead.popleft()
            was_met = (transaction.producer_id, transaction.first_offset) in self._met_before
            self._ongoing.setdefault(transaction.producer_id, _Aborted(transaction, was_met))
