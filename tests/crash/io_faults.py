"""One call to the disk fails, and the script goes on.

For each call of a run: it fails once with an error that such a call can give, or writes short;
or the disk is dead from there on. What the client was told up to the end must hold after the
end of the process, after a power cut, and after an orderly restart.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from cordwood.errors import UnknownPartitionError, UnknownTopicError
from crash.client import REFUSALS, Client, open_store
from crash.history import BrokenPromise, check_store, settle
from crash.power_cut import CHANGING
from crash.scripts import SCRIPTS, directories_of, small_pages
from fakes.manual_clock import ManualClock
from fakes.simulated_fs import Fault, ShortWrite, SimulatedFileSystem

_NAMING: Final = ("create", "link", "make_directory", "map_words", "rename", "open_write")
_OPENING: Final = (
    "create",
    "list",
    "names",
    "lock",
    "map_words",
    "open_read",
    "open_write",
    "open_directory",
    "sync_directory",
)
DEAD: Final = "dead"


@dataclass(frozen=True, slots=True)
class CallFault:
    """`kind` is an errno's name, "short N", or "dead": every change from this call on fails."""

    script: str
    seed: int
    call: int
    kind: str

    def __str__(self) -> str:
        return f"{self.script}/{self.seed}/{self.call}/{self.kind}"


def kinds_for(operation: str) -> list[str]:
    """What can go wrong with such a call."""
    kinds = ["EIO", "EINTR"]
    if operation in ("write_at", "sync", "truncate_to", *_NAMING):
        kinds.append("ENOSPC")
    if operation in _OPENING:
        kinds.append("EMFILE")
    if operation == "write_at":
        kinds += ["short 0", "short 1", "short 70"]
    if operation in CHANGING:
        kinds.append(DEAD)
    return kinds


def all_faults(script: str, seed: int) -> Iterator[CallFault]:
    """Every call of the run with that seed, in every way it can fail."""
    fs = SimulatedFileSystem(clock=ManualClock())
    with small_pages:
        SCRIPTS[script](Client(fs, Random(seed), directories=directories_of(script)))
    for call, (operation, _) in enumerate(fs.call_log, 1):
        for kind in kinds_for(operation):
            yield CallFault(script, seed, call, kind)


@small_pages
def run_fault(fault: CallFault) -> None:
    """Raises `BrokenPromise`, or whatever else went wrong."""
    fs = SimulatedFileSystem(clock=ManualClock())
    directories = directories_of(fault.script)
    client = Client(fs, Random(fault.seed), directories=directories, expects_faults=True)
    _plant(fault, fs, client)
    try:
        SCRIPTS[fault.script](client)
    except (*REFUSALS, UnknownTopicError, UnknownPartitionError) as error:
        client.refusals.append(error)
    fs.clear_faults()
    fs.watch = None
    rng = Random(f"{fault}")
    for left, is_power_cut in ((fs.kill(), False), (fs.crash(rng), True), (fs.crash(rng), True)):
        store = open_store(left, directories)
        check_store(client.history.copy(), store, after_power_cut=is_power_cut)
    _check_restart(client, directories)


def _plant(fault: CallFault, fs: SimulatedFileSystem, client: Client) -> None:
    if fault.kind != DEAD:
        fs.fail_at(fault.call, _fault_named(fault.kind))

    def watch(operation: str, path: str) -> None:
        call = fs.calls + 1
        fails = call == fault.call if fault.kind != DEAD else call >= fault.call
        if fails and operation == "sync" and path.endswith(".log"):
            client.failed_syncs.append((call, path))
        if fails and fault.kind == DEAD and operation in CHANGING:
            raise OSError(errno.EIO, "the disk is dead", path)

    fs.watch = watch


def _fault_named(kind: str) -> Fault:
    if kind.startswith("short "):
        return ShortWrite(int(kind.removeprefix("short ")))
    number = getattr(errno, kind)
    return OSError(number, os.strerror(number))


def _check_restart(client: Client, directories: tuple[str, ...]) -> None:
    """The disk works again: close, open, check, and go on."""
    if client.has_store:
        client.close()
        client.forget_store()
    store = open_store(client.fs, directories)
    check_store(client.history, store, after_power_cut=False)
    settle(client.history, store)
    for name in store.topics():
        for log in store.topic(name).partitions:
            before = log.high_watermark
            placed = store.topic(name).append(
                b"after the fault", key=b"key", partition=log.partition
            )
            if placed.offset != before:
                raise BrokenPromise(f"{log.name} went on at {placed.offset}, not {before}")
    store.close()
