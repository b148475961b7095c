"""A change of a log that an interrupt ends half-way leaves a log that is whole, or has failed."""

import errno
from collections.abc import Callable

import pytest

from cordwood.errors import LogFailedError
from cordwood.format.batch_builder import build_batch
from cordwood.format.record import Record
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.appends.appending import batch_style
from cordwood.log.partition.appends.group_commit import GroupCommit, PendingAppend
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import MIB, TimestampMs
from fakes.interrupter import interrupt, places
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, log_of, new_log, open_store

NOW = TimestampMs(1_700_000_000_000)


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.read()]


def interrupt_at(call: int, operation: str = "", path_ends: str = "") -> Callable[[str, str], None]:
    """Raises at that call, 1 is the next, among those of `operation` on such a path."""
    left = call

    def watch(called: str, path: str) -> None:
        nonlocal left
        if operation in ("", called) and path.endswith(path_ends):
            left -= 1
            if not left:
                raise KeyboardInterrupt

    return watch


def test_a_roll_that_is_interrupted_at_its_snapshot_lets_appends_continue() -> None:
    fs = SimulatedFileSystem()
    _, log = new_log(fs)
    log.append(b"a")
    fs.watch = interrupt_at(1, "write_at", ".snapshot")

    with pytest.raises(KeyboardInterrupt):
        log.roll()
    fs.watch = None
    log.append(b"b")

    assert values(log) == [b"a", b"b"]
    assert values(log_of(open_store(fs.kill()))) == [b"a", b"b"]


def test_an_append_that_is_interrupted_at_its_index_lets_appends_continue() -> None:
    fs = SimulatedFileSystem()
    _, log = new_log(fs, {"durability": "os", "index.interval.bytes": 0})
    fs.watch = interrupt_at(1, "write_at", "0.index")

    expected = [b"%d" % number for number in range(300)]
    interrupts = 0
    for value in expected:
        try:
            log.append(value)
        except KeyboardInterrupt:  # nothing was written
            interrupts += 1
            log.append(value)

    assert interrupts == 1
    assert values(log) == expected


def test_a_group_that_is_interrupted_half_way_is_not_written_twice() -> None:
    fs = SimulatedFileSystem()
    _, log = new_log(fs, {"segment.bytes": 2 * MIB})
    sizes = [3, 4, 900_000, 901_000, 902_000]
    items = [pending(b"x" * size) for size in sizes]
    commits = GroupCommit(log.promises._holder, log.batches._writer, log.syncing)
    fs.watch = interrupt_at(1, "create", ".log")

    with pytest.raises(KeyboardInterrupt):
        commits._groups.serve(items)
    fs.watch = None
    commits._groups.serve(items)

    assert [item.is_served for item in items] == [True] * 5
    assert [len(value or b"") for value in values(log)] == sizes
    assert [item.offset for item in items] == [0, 1, 2, 3, 4]


def pending(value: bytes) -> PendingAppend:
    built = build_batch([Record(value)], NOW, batch_style(TopicConfig()))
    batch = UnplacedBatch(len(built.data), 1, built.max_timestamp)
    return PendingAppend(built.data, batch, NOW, None)


@pytest.mark.parametrize("durability", ["os", "disk"])
def test_a_truncation_that_is_interrupted_loses_nothing_that_is_acknowledged(
    durability: str,
) -> None:
    call = 0
    is_interrupted = True
    while is_interrupted:
        call += 1
        fs = SimulatedFileSystem()
        _, log = new_log(fs, {"durability": durability})
        for number in range(9):
            log.append(b"%d" % number)
            if number % 3 == 2:
                log.roll()
        fs.watch = interrupt_at(call)
        try:
            log.truncation.truncate_to(2)
            is_interrupted = False
        except KeyboardInterrupt:
            pass
        fs.watch = None

        try:
            log.append(b"after")
            acknowledged = [b"after"]
        except LogFailedError:
            acknowledged = []

        found = values(log_of(open_store(fs.kill())))
        assert found[:2] == [b"0", b"1"], call
        assert not acknowledged or found[-1] == b"after", call
        assert len(found) - len(acknowledged) in range(2, 10), call
    assert call > 10


def test_a_sync_that_finds_everything_durable_is_announced_all_the_same() -> None:
    fs = SimulatedFileSystem()
    _, log = new_log(fs, flusher=IdleFlusher())
    log.append(b"a")
    announced: list[int] = []
    log.promises.watch(lambda: announced.append(log.state.durable))

    sync = log.syncing.begin()
    assert sync is not None
    sync.finish(sync.wait())

    assert announced == [1]


def test_a_sync_that_ends_after_the_log_failed_is_announced() -> None:
    fs = SimulatedFileSystem()
    _, log = new_log(fs, {"durability": "os"}, flusher=IdleFlusher())
    log.syncing.sync_pending()
    log.append(b"a")
    sync = log.syncing.begin()
    assert sync is not None
    fs.fail_next("write_at", OSError(errno.EIO, "broken"), path_ends=".log")
    fs.fail_next("size", OSError(errno.EIO, "broken"), path_ends=".log")
    with pytest.raises(OSError, match="broken"):
        log.append(b"b")
    fs.clear_faults()
    announced: list[bool] = []
    log.promises.watch(lambda: announced.append(log.state.failure is not None))

    sync.finish(sync.wait())

    assert announced == [True]


@pytest.mark.parametrize("expected", [None, 1])
@pytest.mark.parametrize("step", [pytest.param(1, marks=pytest.mark.slow), 11])
def test_no_item_of_an_interrupted_group_is_written_twice(expected: int | None, step: int) -> None:
    """Interrupted; the next leader serves the same items. `expected`: one after the other."""

    def group() -> tuple[PartitionLog, GroupCommit, list[PendingAppend]]:
        _, log = new_log(SimulatedFileSystem())
        items = [pending(value) for value in (b"a", b"b", b"c")]
        items[1].expected_offset = expected
        return log, GroupCommit(log.promises._holder, log.batches._writer, log.syncing), items

    _, commits, items = group()
    count = places(lambda: commits._groups.serve(items))
    for place in range(1, count + 1, step):
        log, commits, items = group()
        where = interrupt(lambda: commits._groups.serve(items), place)  # noqa: B023 (run at once)
        commits._groups.serve(items)

        assert values(log) == [b"a", b"b", b"c"], where
        assert [item.offset for item in items] == [0, 1, 2], where
