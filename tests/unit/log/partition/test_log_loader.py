"""Opening a log: what was synced is trusted, the rest re-read, damage reported and kept."""

import random

import pytest

from cordwood.errors import CorruptSegmentError
from cordwood.format.file_names import CLEANER
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.rules.producer_state import MarkerFacts
from cordwood.log.store.store import Store
from cordwood.quantities import Offset, ProducerId, TimestampMs
from cordwood.storage.files import read_whole, write_all
from cordwood.storage.small_files.checkpoint_file import write_offset_checkpoint
from fakes.client_batches import NOW, client_batch, marker_batch
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import DATA, TOPIC, log_of, new_log, open_store

DIRECTORY = "/data/events-0"
SIZE = len(client_batch(b"v00"))
CONFIG: dict[str, object] = {"internal.segment.bytes": 4 * SIZE, "index.interval.bytes": 0}


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem(clock=ManualClock(NOW))


def value(number: int) -> bytes:
    return b"v%02d" % number


def fill(log: PartitionLog, count: int) -> None:
    for number in range(log.end_offset, log.end_offset + count):
        log.append(value(number))


def filled(fs: SimulatedFileSystem, count: int = 10, **config: object) -> Store:
    """Segments of four records each."""
    settings = CONFIG | {key.replace("_", "."): v for key, v in config.items()}
    store, log = new_log(fs, settings, clock=ManualClock(NOW))
    fill(log, count)
    return store


def reopened(fs: SimulatedFileSystem) -> tuple[Store, PartitionLog]:
    store = open_store(fs, clock=ManualClock(NOW))
    return store, log_of(store)


def readable(log: PartitionLog) -> dict[int, bytes | None]:
    """All that can be read, over any damage."""
    found: dict[int, bytes | None] = {}
    offset: int | None = log.start_offset
    while offset is not None and offset < log.high_watermark:
        try:
            for record in log.read(offset):
                found[record.offset] = record.value
            break
        except CorruptSegmentError as error:
            assert error.next_offset is None or error.next_offset > offset
            offset = error.next_offset
    return found


def everything(count: int) -> dict[int, bytes]:
    return {number: value(number) for number in range(count)}


def path(base: int, kind: str = "log") -> str:
    return f"{DIRECTORY}/{base:020}.{kind}"


def content(fs: SimulatedFileSystem, name: str) -> bytes:
    return read_whole(fs, name, limit=1 << 20)


def overwrite(fs: SimulatedFileSystem, name: str, data: bytes) -> None:
    file = fs.create(name, exclusive=False)
    write_all(file, 0, data)
    file.sync()


def names(fs: SimulatedFileSystem) -> set[str]:
    return {entry.name for entry in fs.list(DIRECTORY)}


# --- clean and unclean starts -------------------------------------------------------------------


def test_after_a_clean_close_everything_is_as_it_was(fs: SimulatedFileSystem) -> None:
    filled(fs).close()
    before = {entry.name: content(fs, f"{DIRECTORY}/{entry.name}") for entry in fs.list(DIRECTORY)}

    store, log = reopened(fs)

    assert readable(log) == everything(10)
    assert (log.end_offset, log.state.durable, log.state.recovery_point) == (10, 10, 10)
    store.close()
    after = {entry.name: content(fs, f"{DIRECTORY}/{entry.name}") for entry in fs.list(DIRECTORY)}
    assert after.keys() == before.keys()
    assert {n for n in after if n.endswith(".log") and after[n] != before[n]} == set()


def test_a_clean_start_reads_only_the_end_of_the_last_segment(fs: SimulatedFileSystem) -> None:
    filled(fs, 100).close()
    calls = len(fs.call_log)

    reopened(fs)

    read = {name for operation, name in fs.call_log[calls:] if operation.startswith("read")}
    assert {name for name in read if name.endswith(".log")} <= {path(96)}


def test_the_clean_mark_is_removed_at_the_start(fs: SimulatedFileSystem) -> None:
    filled(fs).close()
    assert fs.exists("/data/.kafka_cleanshutdown")

    reopened(fs)

    assert not fs.exists("/data/.kafka_cleanshutdown")
    for seed in range(10):
        assert not fs.crash(random.Random(seed)).exists("/data/.kafka_cleanshutdown")


def test_after_a_kill_only_what_lies_past_the_recovery_point_is_read_again(
    fs: SimulatedFileSystem,
) -> None:
    store = filled(fs, 98)
    store.maintain()
    fill(log_of(store), 5)
    after = fs.kill()

    _, log = reopened(after)

    read = {name for operation, name in after.call_log if operation.startswith("read")}
    assert {name for name in read if name.endswith(".log")} == {path(96), path(100)}
    assert readable(log) == everything(103)


def test_a_log_without_a_recovery_point_is_read_whole_after_a_kill(
    fs: SimulatedFileSystem,
) -> None:
    store = filled(fs)
    store.maintain()
    after = fs.kill()
    after.remove("/data/recovery-point-offset-checkpoint")

    _, log = reopened(after)

    read = {name for operation, name in after.call_log if operation.startswith("read")}
    assert {name for name in read if name.endswith(".log")} == {path(0), path(4), path(8)}
    assert readable(log) == everything(10)


def test_a_log_on_which_a_segment_had_just_begun_goes_on_in_it(fs: SimulatedFileSystem) -> None:
    store = filled(fs, 8)
    log_of(store).roll()

    _, log = reopened(fs.kill())

    assert log.end_offset == 8
    fill(log, 3)
    assert readable(log) == everything(11)
    assert [s.base_offset for s in log.segments()] == [0, 4, 8]


def test_a_partition_directory_without_segments_is_an_empty_log(fs: SimulatedFileSystem) -> None:
    filled(fs, 0).close()
    for entry in fs.list(DIRECTORY):
        if entry.name != "partition.metadata":
            fs.remove(f"{DIRECTORY}/{entry.name}")

    store, log = reopened(fs)

    assert (log.start_offset, log.end_offset) == (0, 0)
    assert store.damages() == []
    fill(log, 2)
    assert readable(log) == everything(2)


def test_opening_again_and_again_changes_nothing(fs: SimulatedFileSystem) -> None:
    filled(fs)
    for _ in range(4):
        fs = fs.kill()
        store, log = reopened(fs)
        assert readable(log) == everything(10)
        assert store.damages() == []


def test_a_log_can_be_cut_after_it_was_recovered(fs: SimulatedFileSystem) -> None:
    filled(fs)
    _, log = reopened(fs.kill())

    log.truncation.truncate_to(5)
    fill(log, 3)

    assert readable(log) == everything(8)


# --- torn tails ---------------------------------------------------------------------------------


@pytest.mark.parametrize("torn", [1, 11, 12, 60, 61, SIZE - 1])
def test_a_torn_last_batch_is_cut_off_and_the_ones_before_it_stay(
    fs: SimulatedFileSystem, torn: int
) -> None:
    filled(fs, 10)
    after = fs.kill()
    file = after.open_write(path(8))
    file.write_at(2 * SIZE, bytes(client_batch(b"torn", base_offset=10))[:torn])

    store, log = reopened(after)

    assert readable(log) == everything(10)
    assert store.damages() == []
    assert after.size(path(8)) == 2 * SIZE
    fill(log, 1)
    assert readable(log) == everything(11)


@pytest.mark.parametrize("tail", [bytes(500), b"\xff" * 500, b"junk"])
def test_anything_else_behind_the_last_batch_is_cut_off_too(
    fs: SimulatedFileSystem, tail: bytes
) -> None:
    filled(fs, 10)
    after = fs.kill()
    after.open_write(path(8)).write_at(2 * SIZE, tail)

    store, log = reopened(after)

    assert (readable(log), store.damages()) == (everything(10), [])


def test_whole_batches_that_were_written_and_never_acknowledged_may_stay(
    fs: SimulatedFileSystem,
) -> None:
    filled(fs, 10)
    after = fs.kill()
    after.open_write(path(8)).write_at(2 * SIZE, bytes(client_batch(value(10), base_offset=10)))

    _, log = reopened(after)

    assert readable(log) == everything(11)


@pytest.mark.parametrize("lost", range(8, 12))
@pytest.mark.parametrize("has_more", [False, True])
def test_a_batch_whose_first_sector_is_lost_is_found_at_no_other_offset(
    fs: SimulatedFileSystem, lost: int, has_more: bool
) -> None:
    """A power cut leaves only the second one of two sectors that have the front of a batch."""
    front = bytes(512 - lost - len(client_batch(bytes(100))) + 100)
    _, log = new_log(fs, {"durability": "os"}, clock=ManualClock(NOW))
    log.append(front)
    fill(log, 2 if has_more else 1)
    after = fs.kill()
    overwrite(after, path(0), bytes(512) + content(after, path(0))[512:])

    _, log = reopened(after)

    assert readable(log) == ({2: value(2)} if has_more else {})


# --- damage -------------------------------------------------------------------------------------


def damaged(fs: SimulatedFileSystem, name: str, at: int) -> None:
    file = fs.open_write(name)
    byte = file.read_at(at, 1)
    file.write_at(at, bytes([byte[0] ^ 0x55]))
    file.sync()


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("number", range(10))
def test_damage_to_promised_bytes_costs_its_batch_and_nothing_is_deleted(
    fs: SimulatedFileSystem, number: int, is_clean: bool
) -> None:
    store = filled(fs, 10)
    if is_clean:
        store.close()
    after = fs.kill()
    damaged(after, path(number // 4 * 4), number % 4 * SIZE + 50)
    before = {base: content(after, path(base)) for base in (0, 4, 8)}

    _, log = reopened(after)

    expected = everything(10)
    del expected[number]
    assert readable(log) == expected
    assert {base: content(after, path(base)) for base in (0, 4, 8)} == before
    where = log.append(b"next")
    assert where.offset == 10, "an offset is never given twice"
    assert readable(log) == expected | {10: b"next"}


def test_damage_found_when_opening_is_reported_with_its_offsets(fs: SimulatedFileSystem) -> None:
    filled(fs, 10)
    after = fs.kill()
    damaged(after, path(8), 50)

    store, log = reopened(after)

    [damage] = store.damages()
    assert (damage.path, damage.position) == (path(8), 0)
    assert (damage.first_offset, damage.next_offset) == (8, 9)
    with pytest.raises(CorruptSegmentError) as caught:
        list(log.read(8))
    assert (caught.value.first_offset, caught.value.next_offset) == (8, 9)


@pytest.mark.parametrize("base", [0, 4, 8])
def test_a_lost_log_file_is_damage_and_the_others_stay_readable(
    fs: SimulatedFileSystem, base: int
) -> None:
    filled(fs, 10)
    after = fs.kill()
    after.remove(path(base))

    store, log = reopened(after)

    lost = range(base, min(base + 4, 10))
    expected = {n: v for n, v in everything(10).items() if n not in lost}
    assert readable(log) == expected
    assert store.damages()
    assert log.append(b"next").offset == 10


@pytest.mark.parametrize("base", [0, 4])
def test_an_emptied_log_file_is_damage_and_the_others_stay_readable(
    fs: SimulatedFileSystem, base: int
) -> None:
    filled(fs, 10)
    after = fs.kill()
    overwrite(after, path(base), b"")

    store, log = reopened(after)

    expected = {n: v for n, v in everything(10).items() if not base <= n < base + 4}
    assert readable(log) == expected
    assert {(d.first_offset, d.next_offset) for d in store.damages()} == {(base, base + 4)}


def test_a_promised_end_that_is_missing_is_damage_and_its_offsets_are_not_given_again(
    fs: SimulatedFileSystem,
) -> None:
    filled(fs, 10)
    after = fs.kill()
    after.open_write(path(8)).truncate_to(SIZE)

    store, log = reopened(after)

    assert readable(log) == everything(9)
    assert [(d.first_offset, d.next_offset) for d in store.damages()] == [(9, 10)]
    assert log.append(b"next").offset == 10


@pytest.mark.parametrize("seed", range(60))
def test_random_damage_at_any_byte_never_loses_or_changes_another_record(seed: int) -> None:
    rng = random.Random(seed)
    fs = SimulatedFileSystem()
    store = filled(fs, 11, index_interval_bytes=rng.choice([0, 100, 4096]))
    if rng.random() < 0.5:
        store.maintain()
    after = fs.kill()
    base = rng.choice([0, 4, 8])
    size = after.size(path(base))
    at, length = rng.randrange(size), rng.choice([1, 1, 5, 60, 200])
    file = after.open_write(path(base))
    file.write_at(at, rng.randbytes(min(length, size - at)))

    _, log = reopened(after)

    touched = set(range(base + at // SIZE, base + (at + length - 1) // SIZE + 1))
    found = readable(log)
    for number, expected in everything(11).items():
        if number in touched:
            # A header's unused fields may change; a size that changed takes the next along.
            assert found.get(number, expected) == expected
        elif number - 1 not in touched:
            assert found[number] == expected
    assert log.append(b"next").offset >= 11


# --- derived files ------------------------------------------------------------------------------


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("base", [0, 4, 8])
@pytest.mark.parametrize("harm", ["lost", "torn", "empty"])
def test_lost_and_torn_indexes_are_built_anew(
    fs: SimulatedFileSystem, harm: str, base: int, kind: str, is_clean: bool
) -> None:
    store = filled(fs)
    store.maintain()
    if is_clean:
        store.close()
    after = fs.kill()
    name = path(base, kind)
    good = content(after, name)
    if harm == "lost":
        after.remove(name)
    else:
        overwrite(after, name, good[:-1] if harm == "torn" else b"")

    store, log = reopened(after)

    assert (readable(log), store.damages()) == (everything(10), [])
    if harm != "empty" and base < 8:
        assert content(after, name) == good
    assert log.offset_for_time(-3) == 0


@pytest.mark.parametrize("is_clean", [False, True])
@pytest.mark.parametrize("kind", ["index", "timeindex"])
@pytest.mark.parametrize("base", [0, 8])
@pytest.mark.parametrize("junk", [b"\xff", b"\x00", b"\x01\x02"])
def test_indexes_full_of_junk_never_lead_to_a_wrong_record(
    fs: SimulatedFileSystem, junk: bytes, base: int, kind: str, is_clean: bool
) -> None:
    store = filled(fs)
    store.maintain()
    if is_clean:
        store.close()
    after = fs.kill()
    name = path(base, kind)
    overwrite(after, name, (junk * 100)[: after.size(name)])

    _, log = reopened(after)

    assert readable(log) == everything(10)
    for number in range(10):
        assert [r.value for r in log.read(number, max_records=1)] == [value(number)]
    fill(log, 5)
    assert readable(log) == everything(15)


def test_an_index_left_as_kafka_preallocates_it_is_trimmed(fs: SimulatedFileSystem) -> None:
    filled(fs, 3).close()
    for kind, entry in (("index", 8), ("timeindex", 12)):
        good = content(fs, path(0, kind))
        overwrite(fs, path(0, kind), good + bytes(entry * 100))

    _, log = reopened(fs)
    fill(log, 3)

    assert readable(log) == everything(6)


def test_leftovers_of_interrupted_work_are_tidied(fs: SimulatedFileSystem) -> None:
    filled(fs).close()
    for name in (
        f"{0:020}.log.deleted",
        f"{4:020}.index.cleaned",
        f"{77:020}.timeindex",
        f"{3:020}.snapshot.deleted",
    ):
        fs.create(f"{DIRECTORY}/{name}")

    _, log = reopened(fs)

    assert readable(log) == everything(10)
    assert not [n for n in names(fs) if n.endswith((".deleted", ".cleaned"))]
    assert f"{77:020}.timeindex" not in names(fs)


def test_foreign_files_are_left_alone(fs: SimulatedFileSystem) -> None:
    filled(fs).close()
    foreign = ["notes.txt", "0.log", f"{0:020}.log.bak", "x" * 40]
    for name in foreign:
        fs.create(f"{DIRECTORY}/{name}")

    _, log = reopened(fs)

    assert readable(log) == everything(10)
    assert set(foreign) <= names(fs)


@pytest.mark.parametrize("harm", ["lost", "empty", "junk", "zeros"])
def test_the_high_watermark_file_is_made_anew(fs: SimulatedFileSystem, harm: str) -> None:
    filled(fs)
    after = fs.kill()
    name = f"{DIRECTORY}/high-watermark"
    if harm == "lost":
        after.remove(name)
    else:
        overwrite(after, name, {"empty": b"", "junk": b"x" * 72, "zeros": bytes(72)}[harm])

    store, log = reopened(after)

    assert (readable(log), store.damages()) == (everything(10), [])
    assert (log.start_offset, log.high_watermark) == (0, 10)


@pytest.mark.parametrize("harm", ["lost", "junk"])
@pytest.mark.parametrize(
    "name",
    [
        "/data/recovery-point-offset-checkpoint",
        "/data/log-start-offset-checkpoint",
        "/data/replication-offset-checkpoint",
        "/data/meta.properties",
        f"{DIRECTORY}/leader-epoch-checkpoint",
        f"{DIRECTORY}/partition.metadata",
    ],
)
@pytest.mark.parametrize("is_clean", [False, True])
def test_lost_and_damaged_checkpoints_cost_time_and_no_records(
    fs: SimulatedFileSystem, name: str, harm: str, is_clean: bool
) -> None:
    store = filled(fs)
    log_of(store).deletion.delete_before(2)
    store.maintain()
    if is_clean:
        store.close()
    after = fs.kill()
    if harm == "lost":
        if after.exists(name):
            after.remove(name)
    else:
        overwrite(after, name, b"\xff\x00 junk\n77")

    store, log = reopened(after)

    found = readable(log)
    assert {n: found[n] for n in range(2, 10)} == {n: value(n) for n in range(2, 10)}
    assert store.damages() == []
    assert log.start_offset == 2, "the mapped marks know it too"


# --- the start of the log -----------------------------------------------------------------------


@pytest.mark.parametrize("start", [0, 3, 4, 7, 8, 10])
@pytest.mark.parametrize("how", ["close", "kill"])
def test_the_start_is_kept_inside_a_segment_and_on_its_edge(
    fs: SimulatedFileSystem, start: int, how: str
) -> None:
    store = filled(fs)
    log_of(store).deletion.delete_before(start)
    if how == "close":
        store.close()

    _, log = reopened(fs.kill())

    assert log.start_offset == start
    assert list(readable(log)) == list(range(start, 10))


def test_a_log_that_ends_before_its_start_begins_anew_there(fs: SimulatedFileSystem) -> None:
    store = filled(fs, 10, durability="os")
    log_of(store).deletion.delete_before(9)
    store.close()
    for base in (4, 8):
        for kind in ("log", "index", "timeindex"):
            if fs.exists(path(base, kind)):
                fs.remove(path(base, kind))
    overwrite(fs, "/data/recovery-point-offset-checkpoint", b"0\n0\n")
    fs.remove(f"{DIRECTORY}/high-watermark")
    fs.remove("/data/.kafka_cleanshutdown")

    _, log = reopened(fs)

    assert log.start_offset == log.end_offset >= 9
    assert log.append(b"next").offset >= 9


# --- producers and transactions -----------------------------------------------------------------


def snapshots(fs: SimulatedFileSystem) -> list[int]:
    return sorted(int(n.split(".")[0]) for n in names(fs) if n.endswith(".snapshot"))


def produce(log: PartitionLog, first: int, count: int) -> None:
    for sequence in range(first, first + count):
        log.batches.append_batch(client_batch(value(sequence), producer_id=7, sequence=sequence))


def test_snapshots_lie_at_segment_bases_and_at_the_end(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, CONFIG, clock=ManualClock(NOW))
    produce(log, 0, 10)
    store.close()

    assert snapshots(fs) == [4, 8, 10]


def test_stray_snapshots_are_removed_and_the_newest_is_kept(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, CONFIG, clock=ManualClock(NOW))
    produce(log, 0, 10)
    store.close()
    good = content(fs, path(10, "snapshot"))
    for stray in (2, 5, 9):
        overwrite(fs, path(stray, "snapshot"), good)
    overwrite(fs, path(77, "snapshot"), good)

    reopened(fs)

    assert snapshots(fs) == [4, 8, 10]


@pytest.mark.parametrize("harm", ["lost", "junk", "torn"])
@pytest.mark.parametrize("which", ["newest", "all"])
@pytest.mark.parametrize("how", ["close", "kill"])
def test_producers_are_rebuilt_from_the_batches_when_snapshots_are_lost(
    fs: SimulatedFileSystem, harm: str, which: str, how: str
) -> None:
    store, log = new_log(fs, CONFIG, clock=ManualClock(NOW))
    produce(log, 0, 10)
    store.maintain()
    if how == "close":
        store.close()
    after = fs.kill()
    for offset in snapshots(after) if which == "all" else snapshots(after)[-1:]:
        name = path(offset, "snapshot")
        if harm == "lost":
            after.remove(name)
        else:
            overwrite(after, name, content(after, name)[:-1] if harm == "torn" else b"junk" * 20)

    _, log = reopened(after)

    if how == "close" and which == "all" and harm == "lost":
        return  # no snapshot at all after a clean close: a log that never had producers
    again = log.batches.append_batch(client_batch(value(9), producer_id=7, sequence=9))
    assert (again.is_duplicate, again.base_offset) == (True, 9)


def test_producers_are_known_after_a_crash_and_then_a_clean_close(fs: SimulatedFileSystem) -> None:
    _, log = new_log(fs, CONFIG, clock=ManualClock(NOW))
    produce(log, 0, 1)
    after = fs.kill()
    recovered, _ = reopened(after)
    recovered.close()

    _, log = reopened(after)

    again = log.batches.append_batch(client_batch(value(0), producer_id=7, sequence=0))
    assert (again.is_duplicate, again.base_offset) == (True, 0)


def test_producers_of_a_log_with_damage_are_rebuilt_around_it(fs: SimulatedFileSystem) -> None:
    _, log = new_log(fs, CONFIG, clock=ManualClock(NOW))
    produce(log, 0, 10)
    after = fs.kill()
    damaged(after, path(4), 50)

    _, log = reopened(after)

    assert log.batches.append_batch(client_batch(value(9), producer_id=7, sequence=9)).is_duplicate


def test_deleting_records_keeps_their_producers_known(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, CONFIG, clock=ManualClock(NOW))
    produce(log, 0, 10)
    log.deletion.delete_before(10)
    store.close()

    _, log = reopened(fs)

    assert log.batches.append_batch(client_batch(value(9), producer_id=7, sequence=9)).is_duplicate
    assert (
        log.batches.append_batch(client_batch(value(10), producer_id=7, sequence=10)).base_offset
        == 10
    )


def test_producers_silent_for_too_long_are_forgotten_at_the_start(fs: SimulatedFileSystem) -> None:
    clock = ManualClock(NOW)
    store, log = new_log(fs, CONFIG, clock=clock)
    produce(log, 0, 3)
    clock.advance(2 * 3600 * 1000)
    store.close()

    later = open_store(fs, clock=ManualClock(NOW + 25 * 3600 * 1000))

    where = log_of(later).batches.append_batch(
        client_batch(b"x", producer_id=7, sequence=99, timestamps=[NOW])
    )
    assert not where.is_duplicate


@pytest.mark.parametrize("how", ["close", "kill"])
@pytest.mark.parametrize("is_rolled", [False, True])
def test_aborted_transactions_over_several_segments_are_known(
    fs: SimulatedFileSystem, how: str, is_rolled: bool
) -> None:
    store, log = new_log(fs, clock=ManualClock(NOW))
    for producer in (7, 8):
        log.batches.append_batch(
            client_batch(b"t", producer_id=producer, sequence=0, transactional=True)
        )
    if is_rolled:
        log.roll()
    for producer in (7, 8):
        log.batches.append_marker(
            marker_batch(producer, is_abort=True),
            MarkerFacts(
                producer_id=ProducerId(producer),
                producer_epoch=0,
                coordinator_epoch=0,
                offset=Offset(0),
                timestamp=TimestampMs(NOW),
                is_abort=True,
            ),
        )
    if how == "close":
        store.close()

    _, log = reopened(fs.kill())

    entries = [t for s in log.view().segments for t in s.indexes.transaction.entries()]
    assert [(t.producer_id, t.first_offset, t.last_offset) for t in entries] == [
        (7, 0, 2),
        (8, 1, 3),
    ]
    assert [t.last_stable_offset for t in entries] == [1, 4]
    assert log.last_stable_offset == 4


# --- compacted logs -----------------------------------------------------------------------------


def test_offsets_that_overlap_after_compaction_are_tolerated(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, {"cleanup.policy": "compact"}, clock=ManualClock(NOW))
    for number in range(4):
        log.append(value(number), key=b"k%d" % number)
    log.roll()
    log.append(value(4), key=b"k4")
    store.close()
    # A crash after compaction swapped in [0, 4) and before the old segment at 2 was removed.
    data = content(fs, path(0))
    overwrite(fs, path(2), data[len(data) // 2 :])

    _, log = reopened(fs)

    assert [(r.offset, r.value) for r in log.read()] == [(n, value(n)) for n in range(5)]


def test_gaps_in_a_compacted_log_are_no_damage(fs: SimulatedFileSystem) -> None:
    store, log = new_log(fs, {"cleanup.policy": "compact"}, clock=ManualClock(NOW))
    for number in range(6):
        log.append(value(number), key=b"k%d" % number)
    log.roll()
    log.append(value(6), key=b"k6")
    store.close()
    data = content(fs, path(0))
    size = len(data) // 6
    overwrite(fs, path(0), data[size : 2 * size] + data[4 * size : 5 * size])
    write_offset_checkpoint(fs, DATA, CLEANER, {(TOPIC, 0): Offset(6)})

    for after in (fs, fs.kill()):
        store, log = reopened(after)
        assert [r.offset for r in log.read()] == [1, 4, 6]
        assert [r.offset for r in log.read(2)] == [4, 6]
        assert [r.offset for r in log.read(5)] == [6]
        assert store.damages() == []
        store.close()
