"""Where a log starts, by what several files say of it.

    first segment       nothing before its base offset is there
    mapped mark         carries a check, but may be older than the last deletion after a power cut
    checkpoint          durable, but text without a check: one wrong digit would hide records
    leader epochs       the first one begins where the log does, since a deletion writes that too

So the checkpoint, which alone may say more than the first two, is believed when another file
says the same.
"""

import logging

from cordwood.log.rules.leader_epochs import LeaderEpochs
from cordwood.quantities import Offset

logger = logging.getLogger(__name__)


def known_start(
    name: str,
    *,
    first_base: Offset | None,
    mark: Offset | None,
    checkpoint: Offset | None,
    epochs: LeaderEpochs,
) -> Offset:
    """The first offset that may be read, as far as the files can be believed."""
    certain = Offset(max(first_base or 0, mark or 0))
    if checkpoint is None or checkpoint <= certain:
        return certain
    earliest = epochs.earliest
    if earliest is None or earliest.start_offset >= checkpoint:
        return checkpoint
    believed = Offset(max(certain, earliest.start_offset))
    logger.warning(
        "%s: the checkpoint says it starts at %d, and nothing else does; it starts at %d",
        name,
        checkpoint,
        believed,
    )
    return believed
