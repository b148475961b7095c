"""One seed: a script runs, the power goes at one moment of it, the store comes up again.

The moment is any call that changes what is on the disk, all of them alike, or the end of the
script. One in five seeds is the end of the process instead, which loses nothing that was
written. One in four loses the power a second time, while recovery is at work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

from cordwood.errors import CorruptSegmentError
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.store.store import Store
from cordwood.quantities import FilePosition
from cordwood.storage.log_file.segment_reader import SegmentReader
from crash.client import Client, look_beside, open_store
from crash.history import BrokenPromise, History, check_store, settle
from crash.scripts import AHEAD, SCRIPTS, directories_of, small_pages
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import SimulatedFileSystem

# Reading changes nothing, so a cut before it is a cut before what comes next.
CHANGING: Final = frozenset(
    (
        "create", "link", "make_directory", "map_words", "remove", "remove_tree", "rename",
        "sync", "sync_directory", "truncate_to", "write_at",
    )
)  # fmt: skip


@dataclass(slots=True)
class Cut:
    """What was left, and what had been promised by then."""

    left: SimulatedFileSystem
    history: History
    directories: tuple[str, ...]
    preallocates: bool | str = False


class CutWatch:
    """Lets the power go at one moment of a run, each as likely as any other.

    The run is not disturbed: at a moment that draws a lower number than all before it, the
    state that a cut would leave is kept in place of the last one.
    """

    def __init__(
        self,
        fs: SimulatedFileSystem,
        rng: Random,
        history: Callable[[], History],
        directories: tuple[str, ...],
        *,
        kill: bool,
    ) -> None:
        self._fs = fs
        self._rng = rng
        self._history = history
        self._directories = directories
        self._kill = kill
        self._lowest = 2.0
        self.cut: Cut | None = None
        fs.watch = self._called

    def finish(self) -> Cut:
        """The end of the run is a moment too."""
        self._consider()
        self._fs.watch = None
        assert self.cut is not None
        return self.cut

    def _called(self, operation: str, path: str) -> None:
        if operation in CHANGING:
            self._consider()

    def _consider(self) -> None:
        drawn = self._rng.random()
        if drawn < self._lowest:
            self._lowest = drawn
            left = self._fs.kill() if self._kill else self._fs.crash(Random(self._rng.random()))
            self.cut = Cut(left, self._history().copy(), self._directories)


@small_pages
def run_seed(script: str, seed: int) -> None:
    """Raises `BrokenPromise`, or whatever else went wrong."""
    rng = Random(f"{script.removesuffix(AHEAD)} {seed}")  # a twin does the same
    is_kill = rng.random() < 0.2
    fs = SimulatedFileSystem(clock=ManualClock())
    directories = directories_of(script)
    client = Client(fs, Random(rng.random()), directories=directories)
    watch = CutWatch(fs, Random(rng.random()), lambda: client.history, directories, kill=is_kill)
    SCRIPTS[script](client)
    cut = watch.finish()
    cut.preallocates = client.preallocates
    if rng.random() < 0.25:
        cut = _cut_in_recovery(cut, rng, is_kill=is_kill)
    check_cut(cut, rng, after_power_cut=not is_kill)


def _cut_in_recovery(cut: Cut, rng: Random, *, is_kill: bool) -> Cut:
    watch = CutWatch(
        cut.left, Random(rng.random()), lambda: cut.history, cut.directories, kill=is_kill
    )
    open_store(cut.left, cut.directories)
    again = watch.finish()
    again.preallocates = cut.preallocates
    return again


def check_cut(cut: Cut, rng: Random, *, after_power_cut: bool) -> None:
    """Come up, check, come up again, go on, close, come up once more."""
    history, fs = cut.history, cut.left
    if all(fs.exists(path) for path in cut.directories) and rng.random() < 0.5:
        look_beside(fs, history, cut.directories)
    store = open_store(fs, cut.directories)
    check_store(history, store, after_power_cut=after_power_cut)
    check_ends(fs, exact_logs(history, store))
    settle(history, store)
    fs = fs.kill() if rng.random() < 0.5 else fs.crash(rng)
    store = open_store(fs, cut.directories)
    check_store(history, store, after_power_cut=True)
    settle(history, store)
    logs = exact_logs(history, store)
    store.close()
    check_ends(fs, logs)
    client = Client(fs, Random(rng.random()), directories=cut.directories)
    client.history = history
    client.preallocates = cut.preallocates
    client.use_contents_from(1_000_000)
    for name in client.store.topics():
        for log in client.store.topic(name).partitions:
            client.append(name, log.partition)
            client.append_many(name, log.partition, count=3)
    client.publish_again()
    logs = exact_logs(history, client.store)
    check_ends(fs, logs, of_active=False)
    client.close()
    check_ends(fs, logs)
    client.reopen()
    check_store(history, client.store, after_power_cut=True)
    if cut.preallocates:
        _check_second_life(client, rng)


def exact_logs(history: History, store: Store) -> list[PartitionLog]:
    """Those that always waited for the disk. Files of others may have damage from a power cut."""
    logs = [log for directory in store.directories for log in directory.logs.values()]
    told = [(log, history.find_log(log.topic, log.partition)) for log in logs]
    return [log for log, known in told if known is not None and known.is_exact]


def check_ends(
    fs: SimulatedFileSystem, logs: list[PartitionLog], *, of_active: bool = True
) -> None:
    """Every log file ends with its last batch; the last one has zeros only while it is written.

    Files below the start of a log are on their way out: nobody reads or repairs them.
    """
    for log in logs:
        *sealed, active = log.state.segments
        segments = [each for each in sealed if each.next_offset > log.state.start]
        for segment in [*segments, active] if of_active else segments:
            file = fs.open_read(segment.name)
            reader = SegmentReader(file, segment.base_offset, file.size())
            try:
                for _ in reader.chunks(FilePosition(0), segment.base_offset):
                    pass
            except CorruptSegmentError as error:
                if not any(damage.path == segment.name for damage in log.damages):
                    raise BrokenPromise(f"{segment.name} does not end with a batch") from error


def _check_second_life(client: Client, rng: Random) -> None:
    """Zeros were cut off once. They come again, and so does the end of the power."""
    for name in client.store.topics():
        for log in client.store.topic(name).partitions:
            client.append(name, log.partition)
    store = open_store(client.fs.crash(rng), client.directories)
    check_store(client.history, store, after_power_cut=True)
