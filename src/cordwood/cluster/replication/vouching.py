"""Whether a broker that starts may vouch for the records of its last life.

Controllers ask for the epoch of the last registration (`PreviousBrokerEpoch`). A broker that names
it says: everything that I ever counted as safe, I still have. It then stays eligible as a leader.
Kafka says so only after an orderly shutdown. With durability=disk a replica counts nothing before
its sync, so a kill or a power cut takes nothing away that was counted.

The epoch is saved right after each registration, before the broker acts on it. A broker that
crashes in between names an older epoch, which vouches for nothing.
"""

import os
from collections.abc import Iterable
from typing import Final

from cordwood.errors import FormatError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.storage.files import FileSystem, read_whole, replace_file

NO_BROKER_EPOCH: Final = -1
BROKER_EPOCH_FILE: Final = "broker-epoch-checkpoint"
_FILE_BYTES_MAX: Final = 64
_FILE_VERSION: Final = b"0"


def vouched_epoch(saved: int, logs: Iterable[PartitionLog], *, was_orderly: bool) -> int:
    """The epoch to name at registration: `saved`, or -1 if a record may be missing.

    `logs` are all replicas of this node, after they were opened.
    """
    for log in logs:
        if log.damages or log.state.failure is not None:
            return NO_BROKER_EPOCH
        if log.config.durability != "disk" and not was_orderly:
            return NO_BROKER_EPOCH
    return saved


class BrokerEpochFile:
    """Keeps the epoch of the last registration in a data directory.

    0
    <epoch>
    """

    def __init__(self, fs: FileSystem, directory: str) -> None:
        self._fs = fs
        self._path = os.path.join(directory, BROKER_EPOCH_FILE)

    def read(self) -> int:
        """The epoch; -1 if none is saved, or it cannot be read."""
        try:
            content = read_whole(self._fs, self._path, limit=_FILE_BYTES_MAX)
        except (FileNotFoundError, FormatError):
            return NO_BROKER_EPOCH
        lines = content.split()
        if len(lines) != 2 or lines[0] != _FILE_VERSION or not lines[1].isdigit():
            return NO_BROKER_EPOCH
        return int(lines[1])

    def save(self, epoch: int) -> None:
        """Durable on return."""
        replace_file(self._fs, self._path, b"0\n%d\n" % epoch)

    def withdraw(self) -> None:
        """Vouch for nothing any more: a sync failed, so the disk may not have what it took."""
        try:
            self._fs.remove(self._path)
            self._fs.sync_directory(os.path.dirname(self._path))
        except FileNotFoundError:
            return
