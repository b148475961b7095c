"""Zeros written ahead of a log's end, for logs with many small syncs: see `ahead_policy`.

Just before a sync that makes the file larger anyway, the file is filled with zeros for some
distance, and the sync makes batches and zeros durable. The syncs after it overwrite blocks inside
the file, so the file system commits no journal for them.

Bytes behind the last batch of an active file are therefore zeros, or torn; nobody reads them.
Whoever freezes or closes a segment trims its file first.
"""

import logging
from contextlib import suppress

from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.partition.state.log_state import LogState
from cordwood.log.partition.state.state_holder import StateHolder
from cordwood.log.rules.ahead_policy import FREE_BYTES_MIN, IDLE_S, SmallSyncs, ahead_end
from cordwood.storage.segment_parts.segment_writer import SegmentWriter

logger = logging.getLogger(__name__)


class WriteAhead:
    """Writes zeros ahead of one log's end. Owned by `LogSync`.

    Every method needs both locks: an append meanwhile would be overwritten.
    """

    def __init__(self, parts: LogParts, holder: StateHolder) -> None:
        self._parts = parts
        self._holder = holder
        self._small_syncs = SmallSyncs()

    def before_sync(self, state: LogState, now_s: float) -> None:
        """Write zeros if the sync of `state` makes the active file larger. Raises no `OSError`."""
        config = self._holder.config
        preallocate = config.preallocate
        if preallocate is False or config.durability != "disk":
            return
        writer = state.segments.active.writer
        size, zeros = writer.extent.size, writer.zeros
        grown, zeros.synced_size = size - zeros.synced_size, size
        if grown <= 0:
            return
        if preallocate is None:
            self._small_syncs.note(grown, now_s)
        if size <= zeros.end or zeros.grows_alone:
            return
        if preallocate is None and not self._small_syncs.are_many:
            return
        end = ahead_end(size=size, grown=grown, segment_bytes=config.segment_bytes_effective)
        if end is not None:
            self._write(writer, end)

    def trim_if_idle(self, state: LogState, *, since_sync_s: float) -> None:
        """Give the zeros back if they are not needed any more. Raises no `OSError`.

        Nothing is synced: after a power cut they may be there again, as zeros of a writer.
        """
        writer = state.segments.active.writer
        if (
            writer.zeros.end > writer.extent.size
            and since_sync_s > IDLE_S
            and self._holder.config.preallocate is not True
        ):
            with suppress(OSError):  # they do no harm, and the next call tries again
                writer.trim()

    def _write(self, writer: SegmentWriter, end: int) -> None:
        """If it fails, the segment goes on without: an append must not fail for this."""
        try:
            kept_free = self._parts.owner.health.free_bytes_min + FREE_BYTES_MIN
            if self._parts.fs.free_bytes(self._parts.directory) < kept_free:
                return
            writer.write_ahead(end)
        except OSError as error:
            writer.zeros.grows_alone = True
            logger.info("%s: nothing is written ahead of the end: %s", self._parts.name, error)
            with suppress(OSError):  # then zeros stay, and do no harm
                writer.trim()
