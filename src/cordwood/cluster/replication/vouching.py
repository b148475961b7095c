"""Whether a broker that starts may vouch for the records of its last life.

Controllers ask for the epoch of the last registration (`PreviousBrokerEpoch`). A broker that names
it says: everything that I ever counted as safe, I still have. It then stays eligible as a leader.
Kafka says so only after an orderly shutdown. With durability=disk a replica counts nothing before
its sync, so a kill or a power cut takes nothing away that was counted.

The epoch is saved right after each registration, before the broker acts on it. A broker that
crashes in between names an older epoch, which vouches for nothing.

A life that ever had a topic that promises less says so beside its epoch, before the first record is
counted. What the topics promise at the next start says nothing about that: their configuration may
have changed, the last time just before the crash.
"""

import os
import threading
from collections.abc import Iterable
from typing import Final

from cordwood.errors import FormatError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.storage.files import FileSystem, read_whole, replace_file

NO_BROKER_EPOCH: Final = -1
BROKER_EPOCH_FILE: Final = "cordwood-broker-epoch"
_FILE_BYTES_MAX: Final = 64
_FILE_VERSION: Final = b"0"
_UNSYNCED: Final = b"unsynced"


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
    """Keeps the epoch of the last registration in every data directory. Any thread may use it.

    0
    <epoch>
    unsynced    only if records may have counted before they were on the disk

    It counts if all directories have the same: one that was replaced, or was offline when the
    broker registered, vouches for nothing.
    """

    def __init__(self, fs: FileSystem, *directories: str) -> None:
        self._fs = fs
        self._paths = [os.path.join(each, BROKER_EPOCH_FILE) for each in directories]
        self._lock = threading.Lock()
        self._epoch = NO_BROKER_EPOCH  # of this life
        self._is_unsynced = False

    def read(self, *, was_orderly: bool) -> int:
        """The epoch; -1 if none is saved everywhere, or one cannot be read.

        Also -1 if records may have counted before they were on the disk, unless the end of that
        life `was_orderly`.
        """
        found = {self._read(path, was_orderly=was_orderly) for path in self._paths}
        return found.pop() if len(found) == 1 else NO_BROKER_EPOCH

    def _read(self, path: str, *, was_orderly: bool) -> int:
        try:
            content = read_whole(self._fs, path, limit=_FILE_BYTES_MAX)
        except (FileNotFoundError, FormatError):
            return NO_BROKER_EPOCH
        lines = content.split()
        if was_orderly and lines[2:] == [_UNSYNCED]:
            del lines[2]
        if len(lines) != 2 or lines[0] != _FILE_VERSION or not lines[1].isdigit():
            return NO_BROKER_EPOCH
        return int(lines[1])

    def save(self, epoch: int) -> None:
        """Durable on return. Raises `OSError` if a directory does not take it."""
        with self._lock:
            self._save(epoch, is_unsynced=self._is_unsynced)
            self._epoch = epoch

    def note_unsynced(self) -> None:
        """A topic counts records that are not on the disk. Durable on return.

        To be called before the first is counted. Raises `OSError`; then it must not be.
        """
        with self._lock:
            if not self._is_unsynced:
                if self._epoch != NO_BROKER_EPOCH:
                    self._save(self._epoch, is_unsynced=True)
                self._is_unsynced = True

    def _save(self, epoch: int, *, is_unsynced: bool) -> None:
        rest = _UNSYNCED + b"\n" if is_unsynced else b""
        for path in self._paths:
            replace_file(self._fs, path, b"0\n%d\n" % epoch + rest)

    def withdraw(self) -> None:
        """Vouch for nothing any more: a sync failed, so the disk may not have what it took.

        One directory without an epoch is enough. Raises `OSError` if there is none.
        """
        with self._lock:
            self._epoch = NO_BROKER_EPOCH
            self._withdraw_all()

    def _withdraw_all(self) -> None:
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
