"""Sequences that a log refused for a reason that passes: the batches behind them have to wait.

A producer sends several batches without waiting for the answers. If the first is refused because
too few replicas are in sync, and the reason passes before the second is looked at, the second is
out of sequence. Told so, librdkafka takes a new epoch for all partitions and sends again what may
be in a log already: records are stored twice. Of an unknown producer the second would even be
accepted, and the first would be out of sequence for ever. So the second is refused in a way that
clients repeat, until the first one has come.
"""

from typing import Final, NamedTuple

from cordwood.errors import EarlierBatchRefusedError

_PRODUCERS_MAX: Final = 1000  # the oldest entry goes: its producer is told "out of order"
_PATIENCE_S: Final = 60.0  # a client that has not sent the batch again by then has given it up


class _Refused(NamedTuple):
    epoch: int
    sequence: int
    until_s: float


class RefusedSequences:
    """The refused batch of each producer that is next in its sequence. Not thread-safe.

    Times are those of the monotonic clock.
    """

    def __init__(self) -> None:
        self._refused: dict[int, _Refused] = {}

    def __bool__(self) -> bool:
        return bool(self._refused)

    def note(
        self, producer_id: int, epoch: int, sequence: int, now_s: float, *, is_known: bool
    ) -> None:
        """A batch was refused. That of a known producer is the one that its log expects."""
        before = self._current(producer_id, epoch, now_s)
        if before is not None and not is_known:
            sequence = min(sequence, before.sequence)
        self._refused.pop(producer_id, None)
        self._refused[producer_id] = _Refused(epoch, sequence, now_s + _PATIENCE_S)
        if len(self._refused) > _PRODUCERS_MAX:
            del self._refused[next(iter(self._refused))]

    def check_gap(
        self, producer_id: int, epoch: int, now_s: float, *, expected: int, got: int
    ) -> None:
        """Raise `EarlierBatchRefusedError` if the missing batch is one that was refused."""
        refused = self._current(producer_id, epoch, now_s)
        if refused is not None and refused.sequence == expected and got > expected:
            raise EarlierBatchRefusedError(producer_id, expected=expected, got=got)

    def check_first(self, producer_id: int, epoch: int, sequence: int, now_s: float) -> None:
        """Raise it if an unknown producer would begin behind a batch that was refused."""
        refused = self._current(producer_id, epoch, now_s)
        if refused is not None and sequence > refused.sequence:
            raise EarlierBatchRefusedError(producer_id, expected=refused.sequence, got=sequence)

    def _current(self, producer_id: int, epoch: int, now_s: float) -> _Refused | None:
        refused = self._refused.get(producer_id)
        if refused is not None and now_s >= refused.until_s:
            del self._refused[producer_id]
            return None
        return refused if refused is not None and refused.epoch == epoch else None
