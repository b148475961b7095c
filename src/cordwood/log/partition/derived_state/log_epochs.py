"""The leader epochs of a log and the checkpoint file that keeps them."""

import os

from cordwood.format.file_names import LEADER_EPOCHS
from cordwood.log.partition.state.log_parts import LogParts
from cordwood.log.rules.leader_epochs import LeaderEpochs
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.files import sync_file
from cordwood.storage.small_files.checkpoint_file import write_epoch_checkpoint


class LogEpochs:
    """Changed under the log's lock. `known` and `current` may be read by anyone.

    The checkpoint file is written whenever `known` changes, durably except in a new log.
    """

    def __init__(self, parts: LogParts, known: LeaderEpochs, end: Offset) -> None:
        self.known = known
        self._fs = parts.fs
        self._directory = parts.directory
        latest = known.latest
        self.current = LeaderEpoch(0) if latest is None else latest.epoch
        epoch = parts.role.opening_epoch(latest)
        self._is_leader = epoch is not None  # else the epochs are those of the batches
        if epoch is not None and parts.settle is None:
            self.enter(epoch, end)
        elif parts.settle is not None:
            if epoch is not None:
                self.current = epoch
                known.assign(epoch, end)
            write_epoch_checkpoint(parts.fs, parts.directory, known.entries, sync=False)

    def enter(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Batches from `start` on are written in `epoch`."""
        self.current = epoch
        if self.known.assign(epoch, start):
            self._save()

    def lead(self, epoch: LeaderEpoch, start: Offset) -> None:
        """This replica leads from `start` on. If the checkpoint cannot be written, nothing changes.

        The epoch is on the disk before its first batch is: an epoch without records counts too.
        """
        before = self.known.entries
        try:
            self.enter(epoch, start)
        except BaseException:
            self.known.entries = before
            raise
        self._is_leader = True

    def follow(self) -> None:
        """Others lead: from here on the epochs are those of the batches."""
        self._is_leader = False

    def truncate_from_end(self, end: Offset) -> None:
        """The log is about to end at `end`."""
        if self.known.truncate_from_end(end):
            self._save()

    def continue_at(self, end: Offset) -> None:
        """The log was cut at `end`: from there on a leader writes in its epoch, as before."""
        if self._is_leader and self.known.assign(self.current, end):
            self._save()

    def truncate_from_start(self, start: Offset) -> None:
        """The log now starts at `start`. The file is written even when nothing changed:

        the checkpoint of starts is believed only when the epochs agree, see `known_start`.
        """
        self.known.truncate_from_start(start)
        self._save()

    def restart_at(self, offset: Offset) -> None:
        """The log is now empty and continues at `offset`."""
        self.known.clear()
        if self._is_leader:
            self.known.assign(self.current, offset)
        self._save()

    def sync(self) -> None:
        """Make the checkpoint file of a new log durable, without its name."""
        sync_file(self._fs, os.path.join(self._directory, LEADER_EPOCHS))

    def _save(self) -> None:
        write_epoch_checkpoint(self._fs, self._directory, self.known.entries)
