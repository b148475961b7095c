"""Tracks transactions while compaction walks over a log in order.

Aborted records are removed at once. The marker that ends a transaction must outlive all its
records: a reader that finds records without the marker takes them for undecided, or for
committed. So a marker is removed only after a walk that found no batch of its transaction, and
then only after its delay, like a tombstone.
"""

from collections import deque
from collections.abc import Iterable

from cordwood.format.batch import BatchInfo
from cordwood.format.batch_header import TRANSACTIONAL
from cordwood.format.control_record import ControlType, control_type_of
from cordwood.format.index_entry import AbortedTransaction
from cordwood.value_class import dataclass


@dataclass(slots=True)
class _Aborted:
    transaction: AbortedTransaction
    has_batches: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MarkerFate:
    """What to do with a control batch.

    is_spent  no remaining record needs it
    aborted   the entry that the transaction index must keep
    """

    is_spent: bool
    aborted: AbortedTransaction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkState:
    """The state of a walk between two parts of a log.

    committed  producers with records of an open transaction that is not aborted
    met        producer and first offset of each aborted transaction whose batches were found
    """

    committed: frozenset[int] = frozenset()
    met: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkEffect:
    """The effect of a walk over one part, begun without the state of the parts before.

    ended   producers whose commit markers it found; their earlier transactions are over
    state   its state at the end
    """

    ended: frozenset[int]
    state: WalkState

    def after(self, before: WalkState) -> WalkState:
        """The state at the end of this part, given the state before it."""
        return WalkState(
            committed=(before.committed - self.ended) | self.state.committed,
            met=before.met | self.state.met,
        )


class TransactionWalk:
    """Tracks the transactions of a log or a part of it. Feed it every batch, in order."""

    def __init__(
        self, aborted: Iterable[AbortedTransaction], before: WalkState | None = None
    ) -> None:
        """`aborted`: all aborted transactions with records in the range, ordered by their start."""
        before = before or WalkState()
        self._ahead = deque(aborted)
        self._ongoing: dict[int, _Aborted] = {}
        self._committed = set(before.committed)
        self._met_before = before.met
        self._ended: set[int] = set()

    @property
    def effect(self) -> WalkEffect:
        """The effect of the batches so far."""
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
        """Take a control batch. `key` is that of its record; None if the batch is empty."""
        self._begin_up_to(batch.next_offset)
        if key is None:
            return MarkerFate(is_spent=True)
        kind = control_type_of(key)
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
