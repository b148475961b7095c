"""Up to where two logs of one partition have the same records. Decisions only.

One leader writes an epoch, so two logs that both have it agree up to the smaller of its two ends,
and on everything before. The greatest epoch that both have decides (KIP-101).
"""

from collections.abc import Sequence

from cordwood.format.small_files.checkpoint_text import EpochEntry
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.value_class import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochHistory:
    """The epochs of the offsets [start, end) of a log. The first one may have begun before."""

    epochs: Sequence[EpochEntry]
    start: Offset
    end: Offset

    def ends(self) -> dict[LeaderEpoch, Offset]:
        """Where each epoch ended."""
        starts = [*(entry.start_offset for entry in self.epochs[1:]), self.end]
        return {
            entry.epoch: Offset(min(end, self.end))
            for entry, end in zip(self.epochs, starts, strict=True)
        }


def agreed_end(own: EpochHistory, other: EpochHistory) -> Offset:
    """The offset below which `other` has the records that `own` has, or had.

    Records of `other` before the start of `own` were deleted here, and nothing contradicts them.
    """
    if other.end <= own.start:
        return other.end
    own_ends, other_ends = own.ends(), other.ends()
    for epoch in sorted(other_ends, reverse=True):
        if epoch in own_ends:
            return Offset(max(min(own_ends[epoch], other_ends[epoch]), own.start))
    return own.start
