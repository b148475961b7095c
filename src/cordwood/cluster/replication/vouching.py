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
BROKER_EPOCH_FILE: Final = "cordwood-broker-epoch"
_FILE_BYTES_MAX: Final = 64
_FILE_VERSION: Final = b"0"


def vouched_epoch(
    saved: int, logs: Iterable[PartitionLog], *, was_orderly: bool, is_complete: bool = True
) -> int:
    """The epoch to name at registration: `saved`, or -1 if a record may be missing.

    `logs` are all replicas of this node, after they were opened. `is_complete`: every replica that
    ever had records is among them; none is in a directory that is offline or gone.
    """
    if not is_complete:
        return NO_BROKER_EPOCH
    for log in logs:
        if log.damages or log.replica.damaged_from is not None or log.state.failure is not None:
            return NO_BROKER_EPOCH
        if log.config.durability != "disk" and not was_orderly:
            return NO_BROKER_EPOCH
    return saved


class BrokerEpochFile:
    """Keeps the epoch of the last registration in every data directory.

    0
    <epoch>

    It counts if all directories have the same: one that was replaced, or was offline when the
    broker registered, vouches for nothing.
    """

    def __init__(self, fs: FileSystem, *directories: str) -> None:
        self._fs = fs
        self._paths = [os.path.join(each, BROKER_EPOCH_FILE) for each in directories]

    def read(self) -> int:
        """The epoch; -1 if none is saved everywhere, or one cannot be read."""
        found = {self._read(path) for path in self._paths}
        return found.pop() if len(found) == 1 else NO_BROKER_EPOCH

    def _read(self, path: str) -> int:
        try:
            content = read_whole(self._fs, path, limit=_FILE_BYTES_MAX)
        except (FileNotFoundError, FormatError):
            return NO_BROKER_EPOCH
        lines = content.split()
        if len(lines) != 2 or lines[0] != _FILE_VERSION or not lines[1].isdigit():
            return NO_BROKER_EPOCH
        return int(lines[1])

    def save(self, epoch: int) -> None:
        """Durable on return. Raises `OSError` if a directory does not take it."""
        for path in self._paths:
            replace_file(self._fs, path, b"0\n%d\n" % epoch)

    def withdraw(self) -> None:
        """Vouch for nothing any more: a sync failed, so the disk may not have what it took.

        One directory without an epoch is enough. Raises `OSError` if there is none.
        """
        failures: list[OSError] = []
        for path in self._paths:
            try:
                self._withdraw(path)
            except OSError as error:
                failures.append(error)
        if len(failures) == len(self._paths):
            raise failures[0]

    def _withdraw(self, path: str) -> None:
        try:
            self._fs.remove(path)
            self._fs.sync_directory(os.path.dirname(path))
        except FileNotFoundError:
            return
