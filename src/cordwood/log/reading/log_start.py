"""Where a log starts. Several files say it:

    first segment       no record before its base offset exists
    mapped mark         has a checksum, but after a power cut may be older than the last deletion
    checkpoint          durable, but a text without checksum: one wrong digit would hide records
    leader epochs       the first epoch begins where the log does: a deletion writes both

The checkpoint alone may name a later start than the first two. It is believed only if the leader
epochs confirm it.
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
    """The first offset that may be read, according to the files that can be believed."""
    certain = Offset(max(first_base or 0, mark or 0))
    if checkpoint is None or checkpoint <= certain:
        return certain
    earliest = epochs.earliest
    if earliest is None or earliest.start_offset >= checkpoint:
        return checkpoint
    believed = Offset(max(certain, earliest.start_offset))
    logger.warning(
        "%s: no other file confirms the start %d of the checkpoint; the log starts at %d",
        name,
        checkpoint,
        believed,
    )
    return believed
