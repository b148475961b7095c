"""Derived files that cannot be written: the log goes on and tries again."""

import errno
import os

import pytest

from cordwood.errors import DiskFullError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.partition.state.log_state import NOTHING_UNSYNCED
from cordwood.log.publishing.publication_ledger import LEDGER_FILE
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC, IdleFlusher, log_of, new_log, open_store

SMALL_SEGMENTS: dict[str, object] = {"internal.segment.bytes": 300, "index.interval.bytes": 0}


class Refusing:
    """Lets calls of some operations on some paths fail for as long as a test wants."""

    def __init__(self, fs: SimulatedFileSystem) -> None:
        self._fs = fs
        self.seen = 0

    def refuse(self, number: int, operations: set[str], *ends: str) -> None:
        def watch(operation: str, path: str) -> None:
            if operation in operations and path.endswith(ends):
                self.seen += 1
                raise OSError(number, os.strerror(number), path)

        self._fs.watch = watch

    def stop(self) -> None:
        assert self.seen, "nothing was refused"
        self._fs.watch = None


WRITING = {"create", "write_at", "sync", "map_words"}
OPENING = {"create", "open_read", "open_write", "open_directory", "list"}


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("ends", [(".index", ".timeindex"), (".snapshot",), (".txnindex",)])
def test_a_roll_and_its_sync_go_on_without_room_for_derived_files(
    number: int, ends: tuple[str, ...]
) -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs, SMALL_SEGMENTS)
    log.append(b"v" * 100)
    refusing = Refusing(fs)
    refusing.refuse(number, {"write_at", "sync"}, *ends)

    offsets = [log.append(b"v" * 100).offset for _ in range(10)]
    fs.watch = None

    assert offsets == list(range(1, 11))
    assert log.state.failure is None
    assert log.append(b"later").offset == 11
    assert log.state.unsynced == NOTHING_UNSYNCED
    store.close()
    reopened = open_store(fs)
    assert reopened.damages() == []
    assert len(list(log_of(reopened).read())) == 12


def test_a_checkpoint_without_room_is_tried_again() -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs, SMALL_SEGMENTS)
    for _ in range(7):
        log.append(b"v" * 100)
    refusing = Refusing(fs)
    refusing.refuse(errno.ENOSPC, {"write_at", "sync"}, ".index", ".timeindex", ".snapshot")

    is_moved = log.syncing.checkpoint()
    refusing.stop()

    assert not is_moved
    assert log.state.failure is None
    assert log.state.recovery_point < log.state.end
    assert log.syncing.checkpoint()
    assert log.state.recovery_point == log.state.end
    store.close()


class RollingBeside:
    """Appends enough for a roll whenever a log file is synced: a writer that is faster."""

    def __init__(self, fs: SimulatedFileSystem, log: PartitionLog) -> None:
        self._fs = fs
        self._log = log
        fs.watch = self._watch

    def _watch(self, operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            self._fs.watch = None
            for number in range(4):
                self._log.append(b"w" * 100, key=b"%d" % number)
            self._fs.watch = self._watch


def test_rolls_during_a_checkpoint_do_not_keep_the_recovery_point_back() -> None:
    fs = SimulatedFileSystem()
    config = {**SMALL_SEGMENTS, "durability": "os"}
    store, log = new_log(fs, config, flusher=IdleFlusher())
    for _ in range(7):
        log.append(b"v" * 100)
    sealed = log.state.segments.active.base_offset
    RollingBeside(fs, log)

    assert log.syncing.checkpoint()
    fs.watch = None

    assert log.state.unsynced.segments
    assert sealed <= log.state.recovery_point <= log.state.unsynced.segments[0].base_offset
    store.close()


def test_rolls_beside_a_compaction_do_not_refuse_it() -> None:
    fs = SimulatedFileSystem()
    config = {**SMALL_SEGMENTS, "durability": "os", "cleanup.policy": "compact"}
    store, log = new_log(fs, config, flusher=IdleFlusher())
    for number in range(12):
        log.append(b"v" * 100, key=b"%d" % (number % 2))
    log.sync()
    RollingBeside(fs, log)

    (result,) = store.compact(TOPIC, force=True)
    fs.watch = None

    assert result.error is None
    assert result.bytes_reclaimed
    store.close()


def test_a_snapshot_whose_sync_failed_is_written_again() -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs)
    log.append(b"v")
    fs.fail_next("sync", OSError(errno.ENOSPC, "full"), path_ends=".snapshot")

    assert not log.syncing.checkpoint()
    assert log.producers.states.needs_snapshot
    assert log.syncing.checkpoint()
    store.close()


def test_a_moment_without_descriptors_fails_no_log() -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs, SMALL_SEGMENTS)
    appended = [log.append(b"v" * 100).offset for _ in range(2)]
    refusing = Refusing(fs)
    refusing.refuse(errno.EMFILE, OPENING, "")

    for _ in range(3):
        with pytest.raises(OSError, match="Too many open files"):
            log.append(b"v" * 200)  # it needs a new segment
    assert not log.syncing.checkpoint()
    refusing.stop()
    appended += [log.append(b"w" * 200).offset for _ in range(5)]

    assert log.state.failure is None
    assert appended == list(range(7))
    assert log.syncing.checkpoint()
    store.close()


def test_a_sync_after_a_roll_needs_no_descriptor() -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs, {**SMALL_SEGMENTS, "durability": "os"}, flusher=IdleFlusher())
    log.append(b"v" * 200)
    log.sync()  # the first one makes the directory durable, and needs some
    log.append(b"v" * 200)
    log.rolling.roll_if_filled()
    refusing = Refusing(fs)
    refusing.refuse(errno.EMFILE, OPENING, "")

    log.sync()
    refusing.stop()

    assert log.state.durable == log.state.end == 2
    assert log.state.unsynced.segments  # their indexes come with the next sync
    log.append(b"v")
    log.sync()
    assert log.state.unsynced == NOTHING_UNSYNCED
    store.close()


def test_a_close_without_room_leaves_an_unclean_directory_that_opens() -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs, SMALL_SEGMENTS)
    for _ in range(5):
        log.append(b"v" * 100)
    refusing = Refusing(fs)
    refusing.refuse(errno.ENOSPC, WRITING, ".index", ".timeindex", ".snapshot", ".tmp")

    store.close()
    refusing.stop()

    assert not fs.exists(f"{DATA}/.kafka_cleanshutdown")
    reopened = open_store(fs)
    assert [r.value for r in log_of(reopened).read()] == [b"v" * 100] * 5
    assert reopened.damages() == []


def test_records_without_room_are_refused_and_a_later_append_succeeds() -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs, SMALL_SEGMENTS)
    refusing = Refusing(fs)
    refusing.refuse(errno.ENOSPC, WRITING - {"sync"}, "")

    for _ in range(3):
        with pytest.raises(DiskFullError):
            log.append(b"v" * 100)
    refusing.stop()

    assert log.append(b"v").offset == 0
    store.close()


def test_a_publication_without_room_for_its_ledger_is_refused_and_fails_no_log() -> None:
    fs = SimulatedFileSystem()
    store, log = new_log(fs)
    refusing = Refusing(fs)
    refusing.refuse(errno.ENOSPC, {"create", "write_at"}, f"{LEDGER_FILE}.tmp")

    with pytest.raises(DiskFullError, match="publishing"):
        store.publish("app", 1, {(TOPIC, 0): [(None, b"v")]})
    refusing.stop()

    assert log.append(b"goes on").offset == 0
    store.publish("app", 1, {(TOPIC, 0): [(None, b"v")]})
    assert [record.value for record in log.read()] == [b"goes on", b"v"]
    store.close()
