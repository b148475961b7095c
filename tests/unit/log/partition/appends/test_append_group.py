"""Batches of several clients that go in together, and syncs whose waiting is done elsewhere."""

import errno

import pytest

from cordwood.errors import LogFailedError, LogHeldError, OutOfOrderSequenceError
from cordwood.format import record_scan
from cordwood.format.compression import Codec
from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.append_checks import BatchGate, check_produced_batch
from cordwood.log.rules.batch_group import BatchGroup
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import Offset, TimestampMs
from fakes.client_batches import NOW, client_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import IdleFlusher, log_of, new_log, open_store


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock(NOW))


def make(fs: SimulatedFileSystem, **config: object) -> PartitionLog:
    """A log whose names are on the disk, so that a sync is one of its active file alone."""
    settings = {key.replace("_", "."): value for key, value in config.items()}
    _, log = new_log(fs, settings, clock=ManualClock(NOW), flusher=IdleFlusher())
    log.syncing.sync_pending()
    return log


def group_of(log: PartitionLog, *batches: bytearray) -> BatchGroup:
    group, gate = BatchGroup(), BatchGate(log.config)
    for batch in batches:
        survey = gate.survey(memoryview(batch), TimestampMs(NOW))
        assert survey is not None
        group.add(memoryview(batch), survey)
    return group


def values(log: PartitionLog) -> list[bytes | None]:
    return [record.value for record in log.read()]


# --- who may go in without a closer look ------------------------------------------------------


@pytest.mark.parametrize("size", [10, 300, 3000])
def test_a_usual_batch_passes_with_the_facts_its_header_has(size: int) -> None:
    batch = client_batch(b"x" * size, b"y", timestamps=[NOW - 5, NOW])

    survey = BatchGate(TopicConfig()).survey(memoryview(batch), TimestampMs(NOW))
    by_kernel = [
        record_scan.survey_produced(memoryview(batch), 0, len(batch), oldest, newest, needs_keys)
        for oldest, newest, needs_keys in (
            (NOW - 5, NOW, False),
            (NOW - 4, NOW, False),
            (NOW - 5, NOW - 1, False),
            (NOW - 5, NOW, True),
        )
    ]

    assert survey == UnplacedBatch(len(batch), 2, TimestampMs(NOW))
    assert by_kernel == [survey, None, None, None]


def test_a_batch_of_a_transaction_passes_and_says_so() -> None:
    batch = client_batch(b"v", transactional=True, producer_id=3, producer_epoch=0, sequence=0)

    survey = BatchGate(TopicConfig()).survey(memoryview(batch), TimestampMs(NOW))

    assert survey is not None
    assert survey.is_transactional is True
    assert (survey.producer_id, survey.base_sequence) == (3, 0)


@pytest.mark.parametrize(
    "batch",
    [
        client_batch(b"v", codec=Codec.GZIP),
        client_batch(b"v", attributes=0x20),
        client_batch(b"v", attributes=0x08),
        client_batch(b"v", base_offset=7),
        client_batch(b"v", transactional=True),
        client_batch(b"v", transactional=True, producer_id=3, producer_epoch=0),
        client_batch(b"v", timestamps=[-1]),
        client_batch(b"v", timestamps=[NOW + 10 * 24 * 3_600_000]),
        client_batch(b"v") + b"more",
        client_batch(b"v")[:-1],
        client_batch(),
    ],
)
def test_whatever_is_unusual_is_left_to_the_closer_look(batch: bytearray) -> None:
    config = TopicConfig.parse({"message.timestamp.after.max.ms": "1h"})

    assert BatchGate(config).survey(memoryview(batch), TimestampMs(NOW)) is None


@pytest.mark.parametrize("size", [10, 300, 3000])
def test_a_flipped_bit_anywhere_never_passes(size: int) -> None:
    batch = client_batch(b"x" * size, keys=[b"k"])
    gate = BatchGate(TopicConfig())

    for position in range(16, len(batch), max(1, len(batch) // 97)):
        batch[position] ^= 0x10
        assert gate.survey(memoryview(batch), TimestampMs(NOW)) is None
        batch[position] ^= 0x10


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("message.timestamp.type", "LogAppendTime"),
        ("compression.type", "zstd"),
        ("max.message.bytes", "70"),
        ("cleanup.policy", "compact"),
    ],
)
def test_a_topic_that_wants_something_done_takes_the_longer_way(key: str, value: str) -> None:
    gate = BatchGate(TopicConfig.parse({key: value}))

    assert gate.survey(memoryview(client_batch(b"value")), TimestampMs(NOW)) is None


def test_the_longer_way_says_the_same_of_a_usual_batch() -> None:
    batch = client_batch(b"v", b"w", producer_id=4, producer_epoch=1, sequence=9)

    checked = check_produced_batch(bytearray(batch), TopicConfig(), now_ms=TimestampMs(NOW))

    assert bytes(checked.data) == bytes(batch)
    assert checked.header.base_sequence == 9


# --- going in ---------------------------------------------------------------------------------


def test_a_group_takes_consecutive_offsets_in_one_write(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")

    placed = log.batches.append_group(
        group_of(log, client_batch(b"a"), client_batch(b"b", b"c"), client_batch(b"d"))
    )

    assert placed == [0, 1, 3]
    assert values(log) == [b"a", b"b", b"c", b"d"]


def test_a_group_that_does_not_fit_the_segment_goes_on_in_the_next(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, durability="os", **{"internal_segment_bytes": 200})

    placed = log.batches.append_group(
        group_of(log, *[client_batch(b"%d" % n * 60) for n in range(5)])
    )

    assert placed == [0, 1, 2, 3, 4]
    assert len(log.segments()) > 1
    assert len(values(log)) == 5


def test_a_duplicate_in_a_group_is_answered_with_its_first_place(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")
    first = client_batch(b"a", producer_id=5, sequence=0)
    log.batches.append_group(group_of(log, bytearray(first)))

    placed = log.batches.append_group(
        group_of(log, client_batch(b"x"), bytearray(first), client_batch(b"y"))
    )

    assert placed == [1, 0, 2]
    assert values(log) == [b"a", b"x", b"y"]


def test_a_gap_in_a_producers_sequence_refuses_that_batch_alone(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")
    log.batches.append_group(group_of(log, client_batch(b"a", producer_id=5, sequence=0)))

    placed = log.batches.append_group(
        group_of(log, client_batch(b"late", producer_id=5, sequence=7), client_batch(b"b"))
    )

    assert isinstance(placed[0], OutOfOrderSequenceError)
    assert placed[1] == 1
    assert values(log) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("epoch", "sequence", "has_room"),
    [(0, 2, True), (0, 0, False), (0, 1, False), (0, 3, False), (1, 2, False), (1, 0, False)],
)
def test_a_producers_next_batch_goes_into_a_group_only_where_it_goes_on(
    epoch: int, sequence: int, has_room: bool
) -> None:
    log_gate = BatchGate(TopicConfig())
    first = client_batch(b"a", b"b", producer_id=5, sequence=0)
    second = client_batch(b"c", producer_id=5, producer_epoch=epoch, sequence=sequence)
    group = BatchGroup()
    survey = log_gate.survey(memoryview(first), TimestampMs(NOW))
    assert survey is not None
    group.add(memoryview(first), survey)

    survey = log_gate.survey(memoryview(second), TimestampMs(NOW))

    assert survey is not None
    assert group.has_room_for(survey) is has_room


def test_a_producers_sequence_starts_again_from_zero_in_a_group() -> None:
    gate, group = BatchGate(TopicConfig()), BatchGroup()
    last = memoryview(client_batch(b"a", producer_id=5, sequence=2**31 - 1))
    survey = gate.survey(last, TimestampMs(NOW))
    assert survey is not None
    group.add(last, survey)

    following = gate.survey(
        memoryview(client_batch(b"b", producer_id=5, sequence=0)), TimestampMs(NOW)
    )

    assert following is not None
    assert group.has_room_for(following)


def test_batches_of_one_producer_go_in_together_and_are_remembered_each(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, durability="os")
    batches = [client_batch(b"%d" % n, producer_id=5, sequence=n) for n in range(3)]

    placed = log.batches.append_group(group_of(log, *map(bytearray, batches)))
    again = log.batches.append_group(group_of(log, *map(bytearray, batches)))

    assert placed == again == [0, 1, 2]
    assert values(log) == [b"0", b"1", b"2"]


def test_where_the_first_of_a_producer_is_refused_those_behind_it_are(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, durability="os")
    log.batches.append_group(group_of(log, client_batch(b"a", producer_id=5, sequence=0)))

    placed = log.batches.append_group(
        group_of(
            log,
            client_batch(b"late", producer_id=5, sequence=7),
            client_batch(b"other"),
            client_batch(b"later", producer_id=5, sequence=8),
        )
    )

    assert isinstance(placed[0], OutOfOrderSequenceError)
    assert placed[1] == 1
    assert isinstance(placed[2], OutOfOrderSequenceError)
    assert values(log) == [b"a", b"other"]


def test_a_retry_of_two_batches_with_a_new_one_behind_them_stores_the_new_one(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, durability="os")
    batches = [client_batch(b"%d" % n, producer_id=5, sequence=n) for n in range(3)]
    log.batches.append_group(group_of(log, *map(bytearray, batches[:2])))

    placed = log.batches.append_group(group_of(log, *map(bytearray, batches)))

    assert placed == [0, 1, 2]
    assert values(log) == [b"0", b"1", b"2"]


def test_after_a_failed_write_batches_of_one_producer_keep_their_order(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs, durability="os")
    log.batches.append_group(group_of(log, client_batch(b"before", producer_id=5, sequence=0)))
    batches = [client_batch(b"%d" % n, producer_id=5, sequence=n) for n in range(1, 4)]
    group = group_of(log, *batches)
    fs.fail_next("write_at", OSError(errno.EIO, "together"))
    fs.fail_next("write_at", OSError(errno.EIO, "the first"))

    placed = log.batches.append_group(group)

    assert isinstance(placed[0], OSError)
    assert all(isinstance(answer, OutOfOrderSequenceError) for answer in placed[1:])
    assert values(log) == [b"before"]


def test_a_batch_alone_is_written_from_where_it_lies(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")
    log.batches.append_group(group_of(log, client_batch(b"a")))
    buffer = memoryview(client_batch(b"b", b"c"))
    survey = BatchGate(log.config).survey(buffer, TimestampMs(NOW))
    assert survey is not None

    group = BatchGroup.alone(buffer, survey)
    placed = log.batches.append_group(group)

    assert group.data is buffer
    assert placed == [1]
    assert int.from_bytes(buffer[:8], "big") == 1
    assert values(log) == [b"a", b"b", b"c"]


def test_after_a_failed_write_each_batch_is_tried_by_itself(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")
    group = group_of(log, client_batch(b"a"), client_batch(b"b"))
    fs.fail_next("write_at", OSError(errno.EIO, "once"))

    placed = log.batches.append_group(group)

    assert placed == [0, 1]
    assert values(log) == [b"a", b"b"]


def test_a_failed_write_that_cannot_be_undone_stops_the_log(fs: SimulatedFileSystem) -> None:
    log = make(fs, durability="os")
    group = group_of(log, client_batch(b"a"), client_batch(b"b"))
    fs.fail_next("write_at", OSError(errno.EIO, "the disk"))
    fs.fail_next("size", OSError(errno.EIO, "still the disk"))

    placed = log.batches.append_group(group)

    assert all(isinstance(answer, LogFailedError) for answer in placed)
    assert isinstance(log.state.failure, LogFailedError)
    assert values(log) == []


# --- syncs in parts ---------------------------------------------------------------------------


def test_readers_see_a_group_when_its_sync_is_finished(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    log.batches.append_group(group_of(log, client_batch(b"a")))
    assert not log.promises.is_kept(Offset(1))

    sync = log.syncing.begin()
    assert sync is not None
    error = sync.wait()
    assert log.high_watermark == 0
    sync.finish(error)

    assert log.promises.is_kept(Offset(1))
    assert values(log) == [b"a"]


def test_what_is_appended_during_a_sync_waits_for_the_next(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    log.batches.append_group(group_of(log, client_batch(b"a")))
    sync = log.syncing.begin()
    assert sync is not None
    log.batches.append_group(group_of(log, client_batch(b"b")))

    sync.finish(sync.wait())

    assert log.high_watermark == 1
    assert not log.promises.is_kept(Offset(2))


def test_one_sync_at_a_time(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    log.batches.append_group(group_of(log, client_batch(b"a")))
    sync = log.syncing.begin()
    assert sync is not None

    assert log.syncing.begin() is None
    sync.finish(sync.wait())

    assert log.syncing.begin() is not None


def test_a_failed_sync_stops_the_log_from_promising(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    log.batches.append_group(group_of(log, client_batch(b"a")))
    sync = log.syncing.begin()
    assert sync is not None

    sync.finish(OSError(errno.EIO, "the disk"))

    assert isinstance(log.state.failure, LogFailedError)
    assert log.high_watermark == 0
    [answer] = log.batches.append_group(group_of(log, client_batch(b"b")))
    assert isinstance(answer, LogFailedError)


def test_who_watches_is_told_of_progress_failure_and_end(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    seen: list[int] = []
    log.promises.watch(lambda: seen.append(log.view().high_watermark))
    log.batches.append_group(group_of(log, client_batch(b"a")))
    assert seen == []

    sync = log.syncing.begin()
    assert sync is not None
    sync.finish(sync.wait())
    assert seen == [1]
    log.close()

    assert len(seen) > 1


def test_who_watches_is_told_of_a_sync_that_had_nothing_to_do(fs: SimulatedFileSystem) -> None:
    log = make(fs)
    log.batches.append_group(group_of(log, client_batch(b"a")))
    log.sync()
    calls: list[None] = []
    log.promises.watch(lambda: calls.append(None))

    sync = log.syncing.begin()
    assert sync is not None
    sync.finish(sync.wait())

    assert calls == [None]


def test_a_group_is_told_to_come_again_while_something_is_being_published(
    fs: SimulatedFileSystem,
) -> None:
    log = make(fs)
    log.publication.begin()

    [refused] = log.batches.append_group(group_of(log, client_batch(b"now")))

    assert isinstance(refused, LogHeldError)
    log.publication.release()
    assert log.batches.append_group(group_of(log, client_batch(b"then"))) == [0]


# --- timestamps ---------------------------------------------------------------------------------


def grouped_times(log: PartitionLog, *times: int) -> None:
    log.batches.append_group(
        group_of(log, *(client_batch(b"v", timestamps=[NOW - 100 + time]) for time in times))
    )


@pytest.mark.parametrize("after", ["a truncation", "a restart", "a crash"])
def test_the_largest_timestamp_of_groups_survives(fs: SimulatedFileSystem, after: str) -> None:
    clock = ManualClock(NOW)
    store, log = new_log(fs, {"index.interval.bytes": 200}, clock=clock)
    for times in ([1], [5, 5, 50, 6, 6, 6], [7, 7, 60]):
        grouped_times(log, *times)
    log.sync()
    assert log.offset_for_time(NOW - 60) == 3

    if after == "a truncation":
        log.truncation.truncate_to(9)
    elif after == "a restart":
        store.close()
        log = log_of(open_store(fs, clock=clock))
    else:
        log = log_of(open_store(fs.kill(), clock=clock))
    log.roll()

    is_cut = after == "a truncation"
    assert log.offset_for_time(NOW - 60) == 3
    assert log.offset_for_time(NOW - 45) == (None if is_cut else 9)
    assert log.view().segments[0].largest_timestamp[0] == NOW - (50 if is_cut else 40)
