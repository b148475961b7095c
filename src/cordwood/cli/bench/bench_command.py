"""``cordwood bench``: a short measurement of this machine or of a broker."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.at.target import BrokerTarget, DirectoryTarget, parse_target
from cordwood.cli.failures import EXIT_INTERRUPTED
from cordwood.cli.options import AtOption, JsonOption
from cordwood.cli.readable_values import NOTHING, counted, shown_count
from cordwood.cli.render import Column, Row, output_for, progress_bar
from cordwood.cli.terminal import say
from cordwood.quantities import GIB, MIB

if TYPE_CHECKING:
    from cordwood.cli.at.target import Target
    from cordwood.cli.bench.load import Load, Measured, Step
    from cordwood.cli.bench.place import Append, BenchPlace, Pair

_BATCH_BYTES: Final = 64 * 1024
_BATCH_RECORDS_MAX: Final = 10_000
_BYTES_MAX: Final = 1 * GIB
_ROOM_SHARE: Final = 4  # at most a quarter of the free space


class DurabilityChoice(StrEnum):
    """When an append is acknowledged."""

    DISK = "disk"
    OS = "os"


def _shown_ms(time_ms: float | None) -> str:
    return NOTHING if time_ms is None else f"{time_ms:.2f}"


_COLUMNS: Final = (
    "what",
    Column(name="records", show=shown_count, is_number=True),
    Column(name="records_per_s", show=lambda rate: f"{rate:,.0f}", is_number=True),
    Column(name="mb_per_s", show=lambda rate: f"{rate:,.2f}", is_number=True),
    Column(name="p50_ms", show=_shown_ms, is_number=True),
    Column(name="p99_ms", show=_shown_ms, is_number=True),
)

SecondsOption = Annotated[
    float, typer.Option("--seconds", "-s", min=0.1, max=600.0, help="Time limit for each row.")
]
RecordsOption = Annotated[
    int | None, typer.Option("--records", "-n", min=1, help="Record limit for each row.")
]
SizeOption = Annotated[
    int, typer.Option("--size", min=1, max=MIB // 2, help="Size of a value in bytes.")
]
ThreadsOption = Annotated[
    int,
    typer.Option(
        "--threads",
        "--connections",
        "-t",
        min=1,
        max=256,
        help="Threads that append; on a broker, each has its own connection.",
    ),
]
PartitionsOption = Annotated[
    int, typer.Option("--partitions", "-p", min=1, max=1000, help="Partitions of the topic.")
]
DurabilityOption = Annotated[
    DurabilityChoice | None,
    typer.Option("--durability", help="When appends are acknowledged. Default: the target's."),
]


def bench(
    *,
    at: AtOption = None,
    seconds: SecondsOption = 3.0,
    records: RecordsOption = None,
    size: SizeOption = 100,
    threads: ThreadsOption = 1,
    partitions: PartitionsOption = 1,
    durability: DurabilityOption = None,
    as_json: JsonOption = False,
) -> None:
    """Measure how fast this machine or broker appends and reads, compared with the bare disk.

    The command creates a temporary store in the directory, or a temporary topic on the broker, and
    removes it at the end. Your topics are not touched. It writes at most 1 GiB for each row.

    It measures the disk alone (a write and an fdatasync for each record, the limit for one thread
    that waits for each record), appending one record per call, appending batches of 64 KiB, and
    reading everything back: checked and parsed, then also as Python objects. Reads come from the
    page cache.

    \b
    Examples:
      cordwood bench --at /srv/data --threads 16
      cordwood bench --at localhost:9092 --size 1000 --seconds 10
    """
    from cordwood.cli.bench.load import Limits, Load
    from cordwood.cli.signals import Interruption

    target = _target(at)
    files = _files_of(target)
    limits = Limits(seconds=seconds, records=records, bytes=_bytes_max(files))
    load = Load(limits, size, lambda what, total: progress_bar(what, total=total, unit="%"))
    config = {} if durability is None else {"durability": durability.value}
    try:
        with Interruption().handled(), _place(target, partitions, config) as place:
            rows = list(_rows(load, place, files, size=size, threads=threads))
            shown_durability = place.durability
    except KeyboardInterrupt:
        say("cordwood: interrupted; temporary data was removed")
        raise typer.Exit(EXIT_INTERRUPTED) from None
    facts = {
        "target": str(target),
        "durability": shown_durability,
        "threads": threads,
        "partitions": partitions,
        "record_bytes": size,
    }
    output_for(as_json=as_json).table(_COLUMNS, [_row(row, facts) for row in rows])
    if not as_json:
        say(
            f"{target}: durability {shown_durability}, {counted(threads, 'thread')}, "
            f"{counted(partitions, 'partition')}, values of {counted(size, 'byte')}"
        )


def _target(at: str | None) -> "Target":
    """The target given, else ./data, else the current directory: any directory will do."""
    if (at is None or not at.strip()) and not os.path.isdir("data"):
        return DirectoryTarget(paths=(".",))
    return parse_target(at)


def _files_of(target: "Target") -> str | None:
    """The directory whose disk is measured for comparison; None for a remote broker."""
    from cordwood.cli.at.access import local_files_of

    found = local_files_of(target) if isinstance(target, BrokerTarget) else target
    return None if found is None else found.paths[0]


def _bytes_max(files: str | None) -> int:
    if files is None:
        return _BYTES_MAX
    room = os.statvfs(files)
    return min(_BYTES_MAX, room.f_bavail * room.f_frsize // _ROOM_SHARE)


@contextmanager
def _place(target: "Target", partitions: int, config: dict[str, str]) -> "Iterator[BenchPlace]":
    from cordwood.cli.bench.place import broker_place, directory_place

    if isinstance(target, BrokerTarget):
        with broker_place(target, partitions=partitions, config=config) as place:
            yield place
    else:
        with directory_place(target.paths[0], partitions=partitions, config=config) as place:
            yield place


def _rows(
    load: "Load", place: "BenchPlace", files: str | None, *, size: int, threads: int
) -> "Iterator[Measured]":
    from cordwood.cli.disk_probe import BareDisk

    value = os.urandom(size)
    if files is not None and os.access(files, os.W_OK):
        with BareDisk(files, value) as disk:
            yield load.run("disk: write + fdatasync", [disk.append])
    appenders = [place.appender() for _ in range(threads)]
    one: list[Pair] = [(None, value)]
    yield load.run("append one by one", [_appending(append, one) for append in appenders])
    count = min(max(_BATCH_BYTES // size, 1), _BATCH_RECORDS_MAX)
    batch = one * count
    label = f"append {count} at a time"
    yield load.run(label, [_appending(append, batch) for append in appenders])
    yield load.run("read", [_reading(place, as_objects=False)], has_latency=False)
    yield load.run("read as objects", [_reading(place, as_objects=True)], has_latency=False)


def _appending(append: "Append", records: "list[Pair]") -> "Step":
    def step() -> int:
        append(records)
        return len(records)

    return step


def _reading(place: "BenchPlace", *, as_objects: bool) -> "Step":
    runs = place.runs()

    def step() -> int:
        run = next(runs, None)
        if run is None:
            return 0
        return len(run.records()) if as_objects else run.end - run.start

    return step


def _row(measured: "Measured", facts: Row) -> Row:
    return {
        "what": measured.what,
        "records": measured.records,
        "seconds": round(measured.seconds, 3),
        "records_per_s": round(measured.records_per_s, 1),
        "mb_per_s": round(measured.mb_per_s, 3),
        "p50_ms": None if measured.p50_ms is None else round(measured.p50_ms, 3),
        "p99_ms": None if measured.p99_ms is None else round(measured.p99_ms, 3),
        **facts,
    }
