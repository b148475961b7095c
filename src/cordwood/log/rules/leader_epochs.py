"""Which leader epoch wrote which offsets of a log.

Each entry is an epoch and its first offset; the epoch ends where the next one starts. With the
list, a consumer or follower that last saw epoch E can find where E ended, and so whether the
records it read are still part of the log.

This module keeps the list. The log writes it to the `leader-epoch-checkpoint` file whenever a
method here reports a change.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Final, NamedTuple

from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.quantities import NO_LEADER_EPOCH, NO_OFFSET, LeaderEpoch, Offset

_BY_EPOCH: Final[Callable[[EpochEntry], LeaderEpoch]] = attrgetter("epoch")
_BY_START: Final[Callable[[EpochEntry], Offset]] = attrgetter("start_offset")


class EpochEnd(NamedTuple):
    """An epoch and the offset after its last record; NO_LEADER_EPOCH, NO_OFFSET if unknown."""

    epoch: LeaderEpoch
    end_offset: Offset


UNKNOWN_EPOCH_END: Final = EpochEnd(NO_LEADER_EPOCH, NO_OFFSET)


class LeaderEpochs:
    """The epochs of one log. Changed under the log's lock; any thread may read `entries`.

    Invariant: epochs and start offsets both increase strictly. `entries` is a tuple that is
    replaced, never edited, so a reader takes the reference once and works on that.
    """

    def __init__(self, entries: Iterable[EpochEntry] = ()) -> None:
        self.entries: tuple[EpochEntry, ...] = ()
        for entry in entries:
            self.assign(entry.epoch, entry.start_offset)

    @property
    def latest(self) -> EpochEntry | None:
        return self.entries[-1] if self.entries else None

    @property
    def earliest(self) -> EpochEntry | None:
        return self.entries[0] if self.entries else None

    def assign(self, epoch: LeaderEpoch, start_offset: Offset) -> bool:
        """Record that `epoch` writes from `start_offset` on; True if that changes the list.

        An epoch keeps its first start. Entries with a higher epoch or a later start contradict
        the new one; they belong to a history that was truncated, and are dropped.
        """
        assert epoch >= 0, epoch
        assert start_offset >= 0, start_offset
        latest = self.latest
        if latest is not None and latest.epoch == epoch and latest.start_offset <= start_offset:
            return False
        kept = [
            entry
            for entry in self.entries
            if entry.epoch < epoch and entry.start_offset < start_offset
        ]
        self.entries = (*kept, EpochEntry(epoch=epoch, start_offset=start_offset))
        return True

    def drop_contradicted(self, epoch: LeaderEpoch, last_offset: Offset) -> bool:
        """A batch of `epoch` ends with `last_offset`: higher epochs do not start before that."""
        return self._replace(
            tuple(
                entry
                for entry in self.entries
                if entry.epoch <= epoch or entry.start_offset > last_offset
            )
        )

    def end_offset_for(self, epoch: LeaderEpoch, log_end: Offset) -> EpochEnd:
        """Where `epoch` ended; if it is not in the list, the greatest epoch below it.

        The latest epoch ends at the log's end. An epoch older than all entries ended where the
        first entry starts: its records were deleted, and that is the first offset after them.
        """
        if epoch < 0:
            return UNKNOWN_EPOCH_END
        entries = self.entries
        if entries and entries[-1].epoch == epoch:
            return EpochEnd(epoch, log_end)
        above = bisect_right(entries, epoch, key=_BY_EPOCH)
        if above == len(entries):
            return UNKNOWN_EPOCH_END
        found = epoch if above == 0 else entries[above - 1].epoch
        return EpochEnd(found, entries[above].start_offset)

    def epoch_of(self, offset: Offset) -> LeaderEpoch | None:
        """The epoch that wrote `offset`; None before the first entry."""
        above = bisect_right(self.entries, offset, key=_BY_START)
        return self.entries[above - 1].epoch if above else None

    def truncate_from_end(self, end_offset: Offset) -> bool:
        """The log now ends at `end_offset`: drop epochs that start there or later."""
        return self._replace(
            tuple(entry for entry in self.entries if entry.start_offset < end_offset)
        )

    def truncate_from_start(self, start_offset: Offset) -> bool:
        """The log now starts at `start_offset`, and so does the epoch that wrote that offset."""
        above = bisect_right(self.entries, start_offset, key=_BY_START)
        if above == 0:
            return False
        first = EpochEntry(epoch=self.entries[above - 1].epoch, start_offset=start_offset)
        return self._replace((first, *self.entries[above:]))

    def clear(self) -> bool:
        return self._replace(())

    def _replace(self, entries: tuple[EpochEntry, ...]) -> bool:
        is_changed = entries != self.entries
        self.entries = entries
        return is_changed
