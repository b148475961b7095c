"""Real processes, a real disk, SIGKILL: a writer dies at random moments, a reader watches.

Each round forks a writer with several appending threads, and a reader beside it. The writer
tells of each acknowledgement, the reader of each record it saw, over a pipe. The writer is
killed; then everything that was told must be in the store, once, at its offset.

    python -m crash.kills DIRECTORY COUNT [SEED]

runs by itself in one thread, so that forking is safe.
"""

from __future__ import annotations

import contextlib
import os
import random
import selectors
import shutil
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NoReturn

import cordwood
from cordwood.errors import UnknownTopicError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_reader import LogReader
from crash.history import BrokenPromise

TOPIC: Final = "orders"
PARTITIONS: Final = 2
THREADS: Final = 4
ROUNDS_PER_STORE: Final = 25
CONFIG: Final = {"internal.segment.bytes": 65_536, "index.interval.bytes": 1024}

Name = tuple[int, int, int]  # round, thread, number
Place = tuple[int, int]  # partition, offset


def value_named(name: Name) -> bytes:
    """The one value a record of that name has."""
    padding = random.Random(f"{name}").randrange(400)
    return b"%d %d %d " % name + bytes(i % 251 for i in range(padding))


def name_of(value: bytes) -> Name:
    round_number, thread, number, _ = value.split(b" ", 3)
    return int(round_number), int(thread), int(number)


# --- the two that are forked --------------------------------------------------------------------


def write_until_killed(directory: str, told: int, round_number: int) -> NoReturn:
    store = cordwood.open(directory)
    if TOPIC not in store.topics():
        store.create_topic(TOPIC, partitions=PARTITIONS, config=CONFIG)
    # In every other round there are zeros ahead of the logs.
    store.alter_topic(TOPIC, config={"preallocate": round_number % 2 == 0})

    def append(thread: int) -> None:
        rng = random.Random(f"{round_number} {thread}")
        number = 0
        while True:
            partition = rng.randrange(PARTITIONS)
            log = store.topic(TOPIC).partition(partition)
            assert isinstance(log, PartitionLog)
            names = [(round_number, thread, number + i) for i in range(rng.choice((1, 1, 2, 9)))]
            number += len(names)
            values = [value_named(name) for name in names]
            if len(values) == 1:
                first = int(log.append(values[0]).offset)
            else:
                first = int(log.append_many([(None, value) for value in values]).first_offset)
            lines = [
                b"%d %d %d %d %d\n" % (partition, first + i, *name) for i, name in enumerate(names)
            ]
            os.write(told, b"".join(lines))

    for thread in range(THREADS):
        threading.Thread(target=append, args=(thread,), daemon=True).start()
    while True:
        time.sleep(0.03)
        store.maintain()


def read_until_idle(directory: str, told: int) -> NoReturn:
    """Tell of every record a reader may see; end when nothing new came for a while."""
    idle_since, positions = time.monotonic(), dict.fromkeys(range(PARTITIONS), 0)
    with cordwood.open(directory, read_only=True) as store:
        while time.monotonic() - idle_since < 0.15:
            try:
                logs = store.topic(TOPIC).partitions
            except UnknownTopicError:
                time.sleep(0.005)
                continue
            for log in logs:
                for record in log.read(positions[log.partition]):
                    assert record.offset is not None
                    assert record.value is not None
                    if record.value != value_named(name_of(record.value)):
                        os.write(told, b"wrong record %d\n" % record.offset)
                    line = (log.partition, record.offset, *name_of(record.value))
                    os.write(told, b"%d %d %d %d %d\n" % line)
                    positions[log.partition] = record.offset + 1
                    idle_since = time.monotonic()
            time.sleep(0.001)
    os._exit(0)


# --- the one that kills -------------------------------------------------------------------------


@dataclass(slots=True)
class Told:
    """What came over the pipes, over all rounds of one store."""

    acknowledged: dict[Place, Name] = field(default_factory=dict)
    seen: dict[Place, Name] = field(default_factory=dict)
    kills: int = 0


def kill_once(directory: str, told: Told, round_number: int, rng: random.Random) -> None:
    """One round: write, kill, and take down what was told until then."""
    writer, acknowledgements = _fork(lambda fd: write_until_killed(directory, fd, round_number))
    reader, sightings = -1, -1
    if os.path.exists(directory):
        reader, sightings = _fork(lambda fd: read_until_idle(directory, fd))
    # Some die while they open the store, most while they append.
    is_early = rng.random() < 0.15
    deadline = time.monotonic() + (rng.uniform(0, 0.08) if is_early else 5.0)
    collected = {acknowledgements: bytearray(), sightings: bytearray()}
    with selectors.DefaultSelector() as selector:
        for fd in collected:
            if fd >= 0:
                selector.register(fd, selectors.EVENT_READ)
        is_killed = False
        while selector.get_map():
            if not is_killed and time.monotonic() >= deadline:
                os.kill(writer, signal.SIGKILL)
                is_killed = True
            for key, _ in selector.select(timeout=0.002):
                data = os.read(key.fd, 1 << 16)
                collected[key.fd] += data
                if not data:
                    selector.unregister(key.fd)
                elif (
                    key.fd == acknowledgements
                    and not is_early
                    and len(data) == len(collected[key.fd])
                ):
                    deadline = time.monotonic() + rng.uniform(0, 0.12)
    for pid in (writer, reader):
        if pid > 0:
            _, status = os.waitpid(pid, 0)
            if pid == reader and status != 0:
                raise BrokenPromise(f"the reader ended with status {status}")
    told.kills += 1
    _note(collected[acknowledgements], told.acknowledged, "acknowledged")
    _note(collected[sightings], told.seen, "seen")


def _note(lines: bytearray, told: dict[Place, Name], what: str) -> None:
    for line in lines.splitlines(keepends=True):
        if not line.endswith(b"\n"):
            continue  # cut off by the kill: never told
        if line.startswith(b"wrong"):
            raise BrokenPromise(f"{what}: {line.decode()}")
        partition, offset, *name = (int(part) for part in line.split())
        place = (partition, offset)
        found = (name[0], name[1], name[2])
        if told.setdefault(place, found) != found:
            raise BrokenPromise(f"{place} was {what} as {told[place]} and as {found}")


def _fork(work: Callable[[int], NoReturn]) -> tuple[int, int]:
    """Run `work` with the writing end of a pipe in a child; return its pid and the other end."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            work(writing)
        except BaseException as error:
            with contextlib.suppress(Exception):
                os.write(2, f"{error!r}\n".encode())
        finally:
            os._exit(3)
    os.close(writing)
    return pid, reading


def check(directory: str, told: Told, *, read_only: bool) -> None:
    """Everything acknowledged and everything seen is there, once, and nothing is missing."""
    if not os.path.exists(directory):
        if told.acknowledged:
            raise BrokenPromise("the directory is gone")
        return
    store = cordwood.open(directory, read_only=True) if read_only else cordwood.open(directory)
    with store:
        if TOPIC not in store.topics():
            if told.acknowledged:
                raise BrokenPromise("the topic is gone")
            return
        found: dict[Place, Name] = {}
        for log in store.topic(TOPIC).partitions:
            _collect(log, found)
        if not read_only and isinstance(store, cordwood.Store) and store.damages():
            raise BrokenPromise(f"damage where nothing rotted: {store.damages()}")
    for what, promised in (("acknowledged", told.acknowledged), ("seen", told.seen)):
        for place, name in promised.items():
            if found.get(place) != name:
                raise BrokenPromise(f"{place} was {what} as {name}, it is {found.get(place)}")
    if len(set(found.values())) != len(found):
        raise BrokenPromise("a record is there twice")


def _collect(log: LogReader, found: dict[Place, Name]) -> None:
    for expected, record in enumerate(log.read()):
        assert record.value is not None
        if record.offset != expected:
            raise BrokenPromise(f"{log.name}: offset {expected} is missing")
        name = name_of(record.value)
        if record.value != value_named(name):
            raise BrokenPromise(f"{log.name}: wrong record at {record.offset}")
        found[log.partition, expected] = name


def kill_many(
    directory: Path, count: int, *, seed: int = 0, show: Callable[[str], None] | None = None
) -> int:
    """Kill `count` writers; return how many rounds broke a promise."""
    rng = random.Random(seed)
    failures, told, data = 0, Told(), str(directory / "data")
    acknowledged = 0
    started = time.monotonic()
    for number in range(count):
        try:
            kill_once(data, told, number, rng)
            check(data, told, read_only=rng.random() < 0.5)
        except BrokenPromise as error:
            failures += 1
            kept = directory / f"failed-{number}"
            shutil.copytree(data, kept)
            print(f"FAILED kill {number} of seed {seed}: {error} (the store is kept in {kept})")
            shutil.rmtree(data)
            told = Told()
        if told.kills == ROUNDS_PER_STORE or number == count - 1:
            acknowledged += len(told.acknowledged)
            if show is not None:
                seconds = time.monotonic() - started
                show(
                    f"kills: {number + 1} of {count}, {failures} failed, "
                    f"{acknowledged} acknowledged records checked, {seconds:.0f} s"
                )
            told = Told()
            shutil.rmtree(data, ignore_errors=True)
    return failures


if __name__ == "__main__":
    seed_given = int(sys.argv[3]) if len(sys.argv) > 3 else 0
    failed = kill_many(Path(sys.argv[1]), int(sys.argv[2]), seed=seed_given, show=print)
    sys.exit(1 if failed else 0)
