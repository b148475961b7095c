"""The leader epochs of a log and the checkpoint file that keeps them."""

from cordwood.log.partition.log_parts import LogParts
from cordwood.log.rules.leader_epochs import LeaderEpochs
from cordwood.quantities import LeaderEpoch, Offset
from cordwood.storage.checkpoint_file import write_epoch_checkpoint


class LogEpochs:
    """Changed under the log's lock. `known` and `current` may be read by anyone.

    The checkpoint file is written whenever `known` changes; that of a new log when it is settled.
    """

    def __init__(self, parts: LogParts, known: LeaderEpochs, end: Offset) -> None:
        self.known = known
        self._fs = parts.fs
        self._directory = parts.directory
        self.current = LeaderEpoch(0)
        epoch = parts.role.opening_epoch(known.latest)
        if epoch is not None and parts.settle is None:
            self.enter(epoch, end)
        elif epoch is not None:
            self.current = epoch
            known.assign(epoch, end)

    def enter(self, epoch: LeaderEpoch, start: Offset) -> None:
        """Batches from `start` on are written in `epoch`."""
        self.current = epoch
        if self.known.assign(epoch, start):
            self.save()

    def truncate_from_end(self, end: Offset) -> None:
        """The log now ends at `end`."""
        if self.known.truncate_from_end(end):
            self.save()

    def truncate_from_start(self, start: Offset) -> None:
        """The log now starts at `start`. The file is written even when nothing changed:

        the checkpoint of starts is believed only when the epochs agree, see `known_start`.
        """
        self.known.truncate_from_start(start)
        self.save()

    def clear(self) -> None:
        self.known.clear()
        self.save()

    def save(self) -> None:
        """Write the checkpoint file. It and all names of the log's files are durable on return."""
        write_epoch_checkpoint(self._fs, self._directory, self.known.entries)
