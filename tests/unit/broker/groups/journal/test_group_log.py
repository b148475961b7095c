"""Records of groups on their way into the topic: together, in order, and answered afterwards."""

import errno
from collections.abc import Iterator
from functools import partial

import pytest

from cordwood.broker.groups.journal.group_log import GroupLogWriter, append_error
from cordwood.errors import (
    CorruptSegmentError,
    DiskFullError,
    LogClosedError,
    LogFailedError,
    RecordTooLargeError,
)
from cordwood.format.batch_header import decode_batch_header
from cordwood.log.reading.file_range import read_range
from cordwood.log.store.store import Store
from cordwood.log.topics.committed_offsets import GroupRecord
from cordwood.protocol.error_code import ErrorCode
from cordwood.quantities import Offset
from fakes.manual_scheduler import ManualScheduler, run_until
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store

TOPIC = "__consumer_offsets"


@pytest.fixture
def store() -> Store:
    return open_store(SimulatedFileSystem())


@pytest.fixture
def scheduler() -> ManualScheduler:
    return ManualScheduler()


@pytest.fixture
def writer(store: Store, scheduler: ManualScheduler) -> Iterator[GroupLogWriter]:
    writer = GroupLogWriter(
        store.committed_offsets, scheduler, lambda: store.ensure_offsets_topic(partitions=3)
    )
    yield writer
    writer.stop()


def record(group: str, number: int) -> GroupRecord:
    return b"\x00\x02" + len(group).to_bytes(2, "big") + group.encode(), b"%d" % number


def values(store: Store) -> list[bytes | None]:
    return [r.value for log in store.topic(TOPIC).partitions for r in log.read()]


def test_the_topic_is_created_with_the_first_record(
    store: Store, scheduler: ManualScheduler, writer: GroupLogWriter
) -> None:
    writer.start()
    codes: list[ErrorCode] = []
    before = store.topics(include_internal=True)

    writer.append("a", [record("a", 1)], codes.append)
    run_until(scheduler, lambda: bool(codes))

    assert before == []
    assert codes == [ErrorCode.none]
    assert store.topic(TOPIC).partition_count == 3
    assert store.topic(TOPIC).config.is_compacted


def test_what_is_queued_goes_in_with_one_append_for_each_partition(
    store: Store, scheduler: ManualScheduler, writer: GroupLogWriter
) -> None:
    topic = store.ensure_offsets_topic(partitions=3)
    codes: list[ErrorCode] = []
    for number in range(30):
        writer.append(f"g{number % 7}", [record(f"g{number % 7}", number)], codes.append)

    writer.start()
    run_until(scheduler, lambda: len(codes) == 30)

    assert codes == [ErrorCode.none] * 30
    for log in topic.partitions:
        found = read_range(log.source, 0, max_bytes=1)
        assert found is not None
        header = decode_batch_header(found.file.read_at(found.position, found.length))
        assert header.next_offset == log.high_watermark, "all of it is one batch"
        numbers = [int(r.value or b"") for r in log.read()]
        assert numbers == sorted(numbers), "the order of the queue is the order of the log"


def test_nobody_is_told_before_append_returned(
    scheduler: ManualScheduler, writer: GroupLogWriter
) -> None:
    codes: list[ErrorCode] = []
    writer.stop()

    writer.append("a", [record("a", 1)], codes.append)
    writer.refresh(codes.append)
    before = list(codes)
    scheduler.run_ready()

    assert before == []
    assert codes == [ErrorCode.coordinator_not_available] * 2


def test_stopping_appends_what_is_queued(
    store: Store, scheduler: ManualScheduler, writer: GroupLogWriter
) -> None:
    codes: list[ErrorCode] = []
    writer.append("a", [record("a", 1)], codes.append)

    writer.start()
    writer.stop()
    scheduler.run_ready()

    assert codes == [ErrorCode.none]
    assert values(store) == [b"1"]


def test_a_record_that_is_too_large_costs_nobody_else(
    store: Store, scheduler: ManualScheduler, writer: GroupLogWriter
) -> None:
    store.ensure_offsets_topic()
    answers: dict[str, ErrorCode] = {}
    huge = (record("b", 2)[0], bytes(3_000_000))
    queued: list[GroupRecord] = [record("a", 1), huge, record("c", 3)]
    for group, one in zip("abc", queued, strict=True):
        writer.append(group, [one], partial(answers.__setitem__, group))

    writer.start()
    run_until(scheduler, lambda: len(answers) == 3)

    assert answers == {
        "a": ErrorCode.none,
        "b": ErrorCode.unknown_server_error,
        "c": ErrorCode.none,
    }
    assert values(store) == [b"1", b"3"]


def test_a_disk_that_fails_is_answered_and_changes_nothing(
    store: Store, scheduler: ManualScheduler, writer: GroupLogWriter
) -> None:
    store.ensure_offsets_topic().partitions[0].close()
    codes: list[ErrorCode] = []

    writer.start()
    writer.append("a", [record("a", 1)], codes.append)
    run_until(scheduler, lambda: bool(codes))

    assert codes == [ErrorCode.coordinator_not_available]


def test_a_topic_that_cannot_be_created_is_answered(
    store: Store, scheduler: ManualScheduler
) -> None:
    def refuse() -> None:
        raise OSError(errno.EIO, "the disk is gone")

    writer = GroupLogWriter(store.committed_offsets, scheduler, refuse)
    codes: list[ErrorCode] = []

    writer.start()
    writer.append("a", [record("a", 1)], codes.append)
    writer.append("b", [record("b", 1)], codes.append)
    run_until(scheduler, lambda: len(codes) == 2)
    writer.stop()

    assert codes == [ErrorCode.not_coordinator] * 2


def test_a_refresh_reads_what_others_appended(
    store: Store, scheduler: ManualScheduler, writer: GroupLogWriter
) -> None:
    store.group("billing").commit({("orders", 0): 1})
    log = store.topic(TOPIC).partition(0)
    [first] = log.read()
    log.append(None, key=first.key)
    codes: list[ErrorCode] = []

    writer.start()
    writer.refresh(codes.append)
    run_until(scheduler, lambda: bool(codes))

    assert codes == [ErrorCode.none]
    assert store.committed_offsets.known_groups() == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (OSError(errno.EIO, "x"), ErrorCode.not_coordinator),
        (DiskFullError("x"), ErrorCode.not_coordinator),
        (LogFailedError("x", "y"), ErrorCode.not_coordinator),
        (
            CorruptSegmentError("x", 1, "y", first_offset=Offset(0), next_offset=None),
            ErrorCode.not_coordinator,
        ),
        (LogClosedError("x"), ErrorCode.coordinator_not_available),
        (RecordTooLargeError(size=2, limit=1), ErrorCode.unknown_server_error),
    ],
)
def test_members_are_told_to_try_again_where_that_may_help(
    error: Exception, code: ErrorCode
) -> None:
    assert append_error(error) is code
