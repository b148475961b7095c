"""What must hold after a change of a store was interrupted, wherever that happened.

A scenario prepares a store on a simulated disk and then makes one change. The judge runs the change
once for each place where an interrupt can arrive, interrupts it there, and looks at what is left:

    - other threads can append, or the log has failed and says so; nobody waits for ever;
    - readers find everything acknowledged, once, at its offset, and no part of a whole;
    - so does the next opening: after a kill, after a power cut, and after an orderly close.
"""

import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from cordwood.errors import LogFailedError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.quantities import MIB
from fakes.client_batches import client_batch
from fakes.interrupter import interrupt, places
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import log_of, open_store

TIMEOUT_S = 30.0
TOPIC = "events"

Place = tuple[int, bytes]  # partition, value


@dataclass
class World:
    """A store, and what its user knows.

    acknowledged   the offset of each value whose append returned
    wholes         values that are there together, or not at all
    removable      values that the change removes, although they were acknowledged
    retry          what the user does after an interrupt, to be sure
    others         threads that append meanwhile; they must end
    is_synced_whole  whether a power cut leaves no part of a whole either
    is_ending      the change closes the store, or opens another one on its disk
    """

    fs: SimulatedFileSystem
    store: Store
    partitions: int
    durability: str
    acknowledged: dict[Place, int] = field(default_factory=dict)
    wholes: list[list[Place]] = field(default_factory=list)
    removable: set[bytes] = field(default_factory=set)
    retry: Callable[[], object] | None = None
    others: list[threading.Thread] = field(default_factory=list)
    is_synced_whole: bool = False
    is_ending: bool = False

    @property
    def log(self) -> PartitionLog:
        return log_of(self.store)

    @property
    def is_readable(self) -> bool:
        """False when a truncation of everything failed: its files are gone, or not."""
        return self.log.state.failure is None or not all(
            value in self.removable for _, value in self.acknowledged
        )

    def append(self, value: bytes, partition: int = 0) -> None:
        appended = log_of(self.store, partition=partition).append(value, key=value[:1])
        self.acknowledged[partition, value] = appended.offset

    def append_elsewhere(self, value: bytes) -> None:
        """In another thread."""
        thread = threading.Thread(target=self.append, args=(value,), daemon=True)
        self.others.append(thread)
        thread.start()


def new_world(
    config: dict[str, object] | None = None,
    *,
    partitions: int = 1,
    removable: set[bytes] | None = None,
) -> World:
    """A topic that has four records in two segments in each partition."""
    fs = SimulatedFileSystem()
    store = open_store(fs)
    settings: dict[str, object] = {"index.interval.bytes": 1} | (config or {})
    store.create_topic(TOPIC, partitions=partitions, config=settings)
    durability = str(settings.get("durability", "disk"))
    world = World(fs, store, partitions, durability, removable=removable or set())
    for partition in range(partitions):
        for value in (b"0-old", b"1-old", b"0-new", b"1-new"):
            world.append(value, partition)
            if value == b"1-old":
                log_of(store, partition=partition).roll()
    return world


@dataclass(frozen=True)
class Scenario:
    """A store and a change of it."""

    name: str
    change: Callable[[World], object]
    prepare: Callable[[], World] = new_world


def count_places(scenario: Scenario) -> int:
    world = scenario.prepare()
    count = places(lambda: scenario.change(world))
    _await_others(world)
    world.store.abandon()
    return count


def judge(scenario: Scenario, place: int) -> None:
    """Interrupt the change there, and check what must hold."""
    world = scenario.prepare()
    where = interrupt(lambda: scenario.change(world), place)
    try:
        _check(world)
    except BaseException as error:
        error.add_note(f"{scenario.name} was interrupted at place {place}, {where}")
        raise


def _check(world: World) -> None:
    known = dict(world.acknowledged)
    killed, cut = world.fs.kill(), world.fs.crash(random.Random(1))
    _in_time(lambda: _await_others(world))
    if not world.is_ending:
        if world.is_readable:
            _check_store(world, world.store, world.acknowledged)
        for partition in range(world.partitions):
            _in_time(lambda: _go_on(world, partition))  # noqa: B023 (run at once)
        if world.is_readable:
            _check_store(world, world.store, world.acknowledged)
    _check_opened(world, killed, known)
    if world.durability == "disk":
        wholes, world.wholes = world.wholes, world.wholes if world.is_synced_whole else []
        _check_opened(world, cut, known)
        world.wholes = wholes
    _check_opened(world, world.fs.kill(), world.acknowledged)
    _in_time(world.store.close)
    _check_opened(world, world.fs, world.acknowledged)


def _await_others(world: World) -> None:
    for thread in world.others:
        thread.join()


def _go_on(world: World, partition: int) -> None:
    """What another thread does afterwards."""
    log = log_of(world.store, partition=partition)
    try:
        if world.retry is not None:
            world.retry()
        for value in (b"x-after", b"y-after"):
            world.append(value, partition)
            log.roll()
        log.sync()
        world.append(b"z-after", partition)
        log.syncing.checkpoint()
    except LogFailedError:
        assert log.state.failure is not None or world.partitions > 1


def _check_opened(world: World, fs: SimulatedFileSystem, acknowledged: Mapping[Place, int]) -> None:
    store = open_store(fs)
    assert store.damages() == []
    _check_store(world, store, acknowledged)
    store.close()


def _check_store(world: World, store: Store, acknowledged: Mapping[Place, int]) -> None:
    seen: set[Place] = set()
    for partition in range(world.partitions):
        log = log_of(store, partition=partition)
        found = {record.offset: record.value or b"" for record in log.read()}
        values = list(found.values())
        assert len(set(values)) == len(values), f"doubled: {values}"
        assert max(found, default=-1) < log.high_watermark <= log.end_offset
        for (of, value), offset in acknowledged.items():
            if of == partition and value not in world.removable:
                assert found.get(offset) == value, f"{value!r} at {offset} is lost: {found}"
        seen |= {(partition, value) for value in values}
    for whole in world.wholes:
        there = [place in seen for place in whole]
        assert all(there) or not any(there), f"half of {whole}: {seen}"


def _in_time(action: Callable[[], object]) -> None:
    errors: list[BaseException] = []

    def run() -> None:
        try:
            action()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive(), "a thread waits for ever"
    if errors:
        raise errors[0]


# --- the changes -----------------------------------------------------------------------------


def _with_os() -> World:
    return new_world({"durability": "os"})


def _append(world: World) -> None:
    world.append(b"a")


def _append_and_roll(world: World) -> None:
    """The append begins a new segment: the time of its record is long after the first one's."""
    base = world.log.state.segments.active.base_offset
    first_ms = world.log.state.segments.active.indexes.facts.first_batch_timestamp
    later_ms = first_ms + world.log.config.segment_ms + 1
    made = world.log.append(b"a", timestamp_ms=later_ms)
    assert world.log.state.segments.active.base_offset > base
    world.acknowledged[0, b"a"] = made.offset


def _append_many(world: World) -> None:
    values = [b"%03d" % number + bytes(400_000) for number in range(6)]
    world.wholes.append([(0, value) for value in values])
    made = world.log.append_many([(b"k", value) for value in values])
    world.acknowledged |= {
        (0, value): made.first_offset + index for index, value in enumerate(values)
    }


def _append_numbered(world: World) -> None:
    """An idempotent producer, which sends the batch again when it has no answer."""
    world.wholes.append([(0, b"a"), (0, b"b")])

    def send() -> None:
        made = world.log.batches.append_batch(client_batch(b"a", b"b", producer_id=7, sequence=0))
        world.acknowledged |= {(0, b"a"): made.base_offset, (0, b"b"): made.last_offset}

    world.retry = send
    send()


def _append_as_leader(world: World) -> None:
    """Two threads queue up while this one waits for its sync."""
    queue = world.log.appending._commits._queue

    def watch(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            world.fs.watch = None
            for value in (b"b", b"c"):
                world.append_elsewhere(value)
            _until(lambda: len(queue._gathering.items) == 2)

    world.fs.watch = watch
    try:
        world.append(b"a")
    finally:
        world.fs.watch = None


def _append_as_follower(world: World) -> None:
    """This thread and another one queue up while a third waits for its sync."""
    queue = world.log.appending._commits._queue
    leads, may_end = threading.Event(), threading.Event()

    def watch(operation: str, path: str) -> None:
        if operation == "sync" and path.endswith(".log"):
            world.fs.watch = None
            leads.set()
            _until(lambda: may_end.is_set() or len(queue._gathering.items) == 2)

    world.fs.watch = watch
    world.append_elsewhere(b"b")
    assert leads.wait(TIMEOUT_S)
    world.append_elsewhere(b"c")
    _until(lambda: len(queue._gathering.items) == 1)
    try:
        world.append(b"a")
    finally:
        may_end.set()


def _until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    while not condition():
        pause.wait(0.0005)


def _sync(world: World) -> None:
    world.log.sync()


def _unsynced() -> World:
    world = _with_os()
    world.log.roll()
    world.append(b"a")
    return world


def _truncate(world: World) -> None:
    world.log.truncation.truncate_to(1)


def _empty(world: World) -> None:
    world.log.truncation.truncate_fully_and_start_at(20)


def _delete(world: World) -> None:
    world.log.delete_before(3)


def _compact(world: World) -> None:
    world.store.compact(TOPIC, force=True)


def _publish(world: World) -> None:
    records = {(TOPIC, partition): [(b"k", b"a"), (b"k", b"b")] for partition in (0, 1)}
    world.wholes.append([(partition, value) for partition in (0, 1) for value in (b"a", b"b")])
    world.is_synced_whole = True

    def publish() -> None:
        made = world.store.publish("app", 1, records)
        assert made.is_repeated == bool(world.acknowledged.get((0, b"a"))) or not made.offsets
        for (_, partition), (begin, _) in made.offsets.items():
            world.acknowledged |= {(partition, b"a"): begin, (partition, b"b"): begin + 1}

    world.retry = publish
    publish()


def _checkpoint(world: World) -> None:
    world.log.syncing.checkpoint()


def _close(world: World) -> None:
    world.is_ending = True
    world.store.close()


def _open(world: World) -> None:
    world.is_ending = True
    world.store = open_store(world.fs)


def _killed() -> World:
    """A store that was not closed: opening it recovers."""
    world = new_world()
    world.fs = world.fs.kill()
    return world


def _ahead(removable: set[bytes] | None = None) -> World:
    """Zeros lie ahead of the log's end."""
    return new_world({"preallocate": True}, removable=removable)


def _ahead_and_rolled() -> World:
    """The next append writes zeros, too."""
    world = _ahead()
    world.log.roll()
    return world


def _ahead_and_killed() -> World:
    world = _ahead()
    world.fs = world.fs.kill()
    return world


_BOTH = {b"0-old", b"1-old"}
_AFTER_1 = {b"1-old", b"0-new", b"1-new"}
_ALL = _BOTH | _AFTER_1

SCENARIOS = [
    Scenario("append", _append),
    Scenario("append at durability=os", _append, _with_os),
    Scenario("append that rolls", _append_and_roll, lambda: new_world({"segment.ms": 1000})),
    Scenario("append many", _append_many, lambda: new_world({"segment.bytes": MIB})),
    Scenario("append numbered", _append_numbered),
    Scenario("append as leader", _append_as_leader),
    Scenario("append as follower", _append_as_follower),
    Scenario("sync", _sync, _unsynced),
    Scenario("roll", lambda world: world.log.roll()),
    Scenario("checkpoint", _checkpoint, _unsynced),
    Scenario("truncate", _truncate, lambda: new_world(removable=_AFTER_1)),
    Scenario("empty", _empty, lambda: new_world(removable=_ALL)),
    Scenario("delete", _delete, lambda: new_world(removable=_BOTH | {b"0-new"})),
    Scenario(
        "compact", _compact, lambda: new_world({"cleanup.policy": "compact"}, removable=_BOTH)
    ),
    Scenario("publish", _publish, lambda: new_world(partitions=2)),
    Scenario("close", _close, _unsynced),
    Scenario("open", _open, _killed),
    Scenario("append over zeros", _append, _ahead),
    Scenario("append and write zeros", _append, _ahead_and_rolled),
    Scenario("roll and trim zeros", lambda world: world.log.roll(), _ahead),
    Scenario("truncate with zeros", _truncate, lambda: _ahead(_AFTER_1)),
    Scenario("close and trim zeros", _close, _ahead),
    Scenario("open and trim zeros", _open, _ahead_and_killed),
]
