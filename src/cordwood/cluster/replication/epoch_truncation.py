"""Where a follower cuts its log when the leader says that it diverges. Decisions only.

The leader names the greatest epoch of its log that is not above the follower's last one, and where
that epoch ended. Up to the smaller of the two ends of that epoch, both logs are the same, because
one leader wrote it. If the follower does not have that epoch, it cuts back to the end of the
greatest one below it and asks again: each round takes away at least one epoch or one batch.

The high watermark decides nothing here. A follower's high watermark may be older than the record
that it has and that was committed since: cutting there would lose it (KIP-101, KIP-279).
"""

from cordwood.log.rules.leader_epochs import EpochEnd
from cordwood.quantities import NO_OFFSET, Offset


def cut_for(diverging: EpochEnd, own: EpochEnd, end: Offset) -> Offset:
    """Where to cut a log that ends at `end`.

    `own` is what the follower's own epochs answer for the epoch in `diverging`.
    """
    if own.end_offset == NO_OFFSET:
        return min(diverging.end_offset, end)
    if own.epoch != diverging.epoch:
        return min(own.end_offset, end)
    return min(own.end_offset, diverging.end_offset, end)
