"""Bits that changed on the disk, and files that were cut, emptied, lost, swapped or doubled.

A small store is built once, closed or killed, and taken as an image: every file and its bytes.
Each test changes the image and opens it. Whatever is then read must be what was written. What
cannot be read must be reported with its offsets, and be no more than what was hit. Files that
are derived must make no difference at all.
"""

from __future__ import annotations

import functools
import posixpath
from dataclasses import dataclass
from random import Random
from typing import Final

from cordwood.errors import CorruptSegmentError
from cordwood.format.batch import BatchDecoder
from cordwood.log.reading.log_reader import LogReader
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.log.store.read_only_store import ReadOnlyStore
from cordwood.log.store.store import Store
from cordwood.quantities import Offset
from cordwood.storage.files import write_all
from crash.client import DATA, Client, open_store
from crash.history import BrokenPromise, Content, read_all
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem

Image = dict[str, bytes]
Place = tuple[str, int]

CONFIG: Final = {"internal.segment.bytes": 700, "index.interval.bytes": 100}
LEADER_EPOCH: Final = range(12, 16)  # of a batch: no checksum covers it, no record depends on it


@dataclass(frozen=True, slots=True)
class Written:
    """One log as it was written."""

    records: dict[int, Content]
    times: dict[int, int]
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Sample:
    """A store as an image, and what is in it."""

    image: Image
    logs: dict[Place, Written]


# --- images -------------------------------------------------------------------------------------


def take_image(fs: SimulatedFileSystem, path: str = DATA) -> Image:
    image: Image = {}
    for entry in fs.list(path):
        child = posixpath.join(path, entry.name)
        if entry.is_directory:
            image.update(take_image(fs, child))
        else:
            image[child] = fs.open_read(child).read_at(0, entry.size)
    return image


def load_image(image: Image) -> SimulatedFileSystem:
    fs = SimulatedFileSystem(clock=ManualClock())
    for path, content in image.items():
        fs.make_directory(posixpath.dirname(path))
        write_all(fs.create(path), 0, content)
    return fs


@functools.cache
def sample(*, is_clean: bool) -> Sample:
    """Two topics of several segments, with producers, deletions, checkpoints and a group."""
    fs = SimulatedFileSystem(clock=ManualClock())
    client = Client(fs, Random(1))
    client.create_topic("orders", config={**CONFIG, "file.delete.delay.ms": 0})
    client.create_topic("payments", partitions=2, config={**CONFIG, "durability": "os"})
    for number in range(14):
        client.append("orders", size_max=90)
        client.append("payments", number % 2, size_max=90)
        client.advance(1000)
        if number % 4 == 3:
            client.produce("orders", producer=1)
            client.append_many("orders", count=3, size_max=40)
        if number == 7:
            client.maintain()
    client.delete_before("orders", 5)
    for number in range(2):
        client.sync("payments", number)
    client.commit("billing", "orders", 9)
    logs = {
        (name, log.partition): _written(log)
        for name in ("orders", "payments")
        for log in client.store.topic(name).partitions
    }
    if is_clean:
        client.close()
    return Sample(take_image(fs.kill()), logs)


def _written(log: LogReader) -> Written:
    records = list(log.read())
    return Written(
        records={int(r.offset or 0): (r.key, r.value) for r in records},
        times={int(r.offset or 0): int(r.timestamp_ms or 0) for r in records},
        start=log.start_offset,
        end=log.high_watermark,
    )


# --- what a change may cost ---------------------------------------------------------------------


def place_of(path: str) -> Place | None:
    """The log a file belongs to; None for a file of the whole store."""
    directory = posixpath.basename(posixpath.dirname(path))
    topic, _, number = directory.rpartition("-")
    return (topic, int(number)) if topic else None


def offsets_at(content: bytes, position: int) -> tuple[range, int]:
    """The offsets of the batch that lies at `position` of a log file, and where in it that is."""
    decoder = BatchDecoder()
    count = decoder.scan(memoryview(content), 0, len(content), next_offset_min=0)
    for index in range(count):
        batch = decoder.batch(index)
        if batch.position <= position < batch.position + batch.size:
            return range(batch.base_offset, batch.next_offset), position - batch.position
    raise AssertionError(position)


@dataclass(frozen=True, slots=True)
class Allowed:
    """What may be unreadable after a change: offsets of one log, and whether some must be.

    `may_move_start`: the first file may be gone, and then the log starts with the next one.
    """

    place: Place | None = None
    offsets: frozenset[int] = frozenset()
    must_be_noticed: bool = False
    may_move_start: bool = False


def allowed_after_flip(image: Image, path: str, position: int) -> Allowed:
    place = place_of(path)
    if not path.endswith(".log") or place is None:
        return Allowed()
    offsets, at = offsets_at(image[path], position)
    return Allowed(place, frozenset(offsets), must_be_noticed=at not in LEADER_EPOCH)


def allowed_after_harm(image: Image, *paths: str) -> Allowed:
    """Whole files were harmed, all of one log: what they held may be gone."""
    logs = [path for path in paths if path.endswith(".log")]
    place = place_of(paths[0])
    if not logs or place is None:
        return Allowed()
    offsets = frozenset(offset for path in logs for offset in offsets_of(image[path]))
    first = min(path for path in image if path.endswith(".log") and place_of(path) == place)
    return Allowed(place, offsets, may_move_start=first in logs)


def offsets_of(content: bytes) -> set[int]:
    decoder = BatchDecoder()
    count = decoder.scan(memoryview(content), 0, len(content), next_offset_min=0)
    batches = [decoder.batch(index) for index in range(count)]
    return {o for batch in batches for o in range(batch.base_offset, batch.next_offset)}


# --- checking -----------------------------------------------------------------------------------


def check_image(image: Image, told: Sample, allowed: Allowed) -> None:
    """Open a changed image both ways, read all of it, go on with it, and read it once more."""
    beside = load_image(image)
    with ReadOnlyStore([DATA], fs=beside, clock=beside.clock, defaults=TopicConfig()) as store:
        for (topic, number), written in told.logs.items():
            check_log(store.topic(topic).partition(number), written, (topic, number), allowed)
    fs = load_image(image)
    for is_first in (True, False):
        writer = open_store(fs)
        for place, written in told.logs.items():
            log = writer.topic(place[0]).partition(place[1])
            check_log(log, written, place, allowed)
            if log.end_offset < written.end:
                raise BrokenPromise(f"{log.name} would give offset {log.end_offset} twice")
            if not is_first:
                continue
            appended = writer.topic(place[0]).append(b"later", partition=place[1])
            if appended.offset < written.end:
                raise BrokenPromise(f"{log.name} gave offset {appended.offset} twice")
        _check_group(writer)
        writer.close()


def _check_group(store: Store) -> None:
    """A commit that cannot be read is an error or none, never another one."""
    try:
        committed = store.group("billing").committed("orders", 0)
    except CorruptSegmentError:
        return
    if committed not in (9, None):
        raise BrokenPromise(f"the group is at {committed}, where it never was")


def check_log(log: LogReader, written: Written, place: Place, allowed: Allowed) -> None:
    is_hit = place == allowed.place
    may_miss = allowed.offsets if is_hit else frozenset()
    found = read_all(log)
    if is_hit and allowed.may_move_start and log.start_offset > written.start:
        found.damaged.append((written.start, log.start_offset))  # refused as out of range
    records = {offset: c for offset, c in found.records if offset < written.end}
    for offset, content in records.items():
        if written.records.get(offset) != content:
            raise BrokenPromise(f"{log.name}: wrong record at {offset}")
    missing = set(written.records) - set(records)
    if missing - may_miss:
        raise BrokenPromise(f"{log.name}: {sorted(missing - may_miss)} cannot be read")
    if any(not any(a <= offset < b for a, b in found.damaged) for offset in missing):
        raise BrokenPromise(f"{log.name}: {sorted(missing)} are missing and nobody said so")
    readable = {o for o in may_miss if o in written.records}
    if readable and allowed.must_be_noticed and not missing:
        raise BrokenPromise(f"{log.name}: the damage at {sorted(may_miss)} was not noticed")
    if log.start_offset != written.start and not (is_hit and allowed.may_move_start):
        raise BrokenPromise(f"{log.name} starts at {log.start_offset}, not {written.start}")
    _check_lookups(log, written, missing)


def _check_lookups(log: LogReader, written: Written, missing: set[int]) -> None:
    """Every offset and every time is found, however wrong the indexes are."""
    for offset, content in written.records.items():
        if offset in missing:
            continue
        record = next(log.read(offset, max_records=1))
        if (record.key, record.value) != content or record.offset != offset:
            raise BrokenPromise(f"{log.name}: read({offset}) gave offset {record.offset}")
    if missing:
        return
    for time_ms in sorted(set(written.times.values())):
        first = min(offset for offset, at in written.times.items() if at >= time_ms)
        try:
            if log.offset_for_time(time_ms) != Offset(first):
                raise BrokenPromise(
                    f"{log.name}: time {time_ms} is at {log.offset_for_time(time_ms)}, not {first}"
                )
        except CorruptSegmentError as error:
            raise BrokenPromise(f"{log.name}: no damage, and yet {error}") from error


# --- one flip -----------------------------------------------------------------------------------


def flipped(image: Image, path: str, bit: int) -> Image:
    content = bytearray(image[path])
    content[bit // 8] ^= 1 << bit % 8
    return {**image, path: bytes(content)}


def run_flip(seed: int) -> None:
    """Flip one random bit of one random file and check everything."""
    rng = Random(seed)
    told = sample(is_clean=rng.random() < 0.5)
    paths = sorted(path for path, content in told.image.items() if content)
    if rng.random() < 0.4:
        paths = [path for path in paths if path.endswith(".log")]
    path = rng.choice(paths)
    bit = rng.randrange(8 * len(told.image[path]))
    try:
        check_image(
            flipped(told.image, path, bit), told, allowed_after_flip(told.image, path, bit // 8)
        )
    except Exception as error:
        error.add_note(f"bit {bit} of {path} was flipped")
        raise
