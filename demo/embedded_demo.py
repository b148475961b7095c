"""Shows the embedded library in under half a minute. Run it with `script/demo embedded`.

Every line that starts with "ok" was verified just now, on files in a temporary directory. The
exit status is 0 only if all checks held. With `--keep DIR` the files stay in DIR.

The same file is also the program that is killed: `embedded_demo.py --writer DIR` appends to the
store in DIR until it dies, and prints the acknowledged offsets.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import cordwood
from cordwood.errors import CorruptSegmentError, DirectoryLockedError, OffsetOutOfRangeError

NINE_O_CLOCK = datetime.now(UTC).replace(hour=9, minute=0, second=0, microsecond=0) - timedelta(2)
WRITER_THREADS = 4
WRITER_TOPIC = "payments"
# Long enough for thousands of appends, short enough for a demo.
WRITER_SECONDS = 1.5
WRITER_TIMEOUT_SECONDS = 20.0


class Report:
    """Prints facts and checks, and counts failed checks."""

    def __init__(self) -> None:
        self.checks = 0
        self.failures = 0

    def title(self, text: str) -> None:
        print(f"\n{text}\n{'-' * len(text)}")

    def say(self, text: str) -> None:
        print(f"   {text}")

    def check(self, rule: str, holds: bool) -> None:
        self.checks += 1
        self.failures += not holds
        print(f"{'ok ' if holds else 'NOT'} {rule}")


# --- one process ------------------------------------------------------------------------------


def append_and_roll(store: cordwood.Store, report: Report) -> None:
    report.title("1  Append and roll segments")
    orders = store.create_topic("orders", config={"segment.records": 250})
    report.say('create_topic("orders", config={"segment.records": 250})')

    first = orders.append(
        b"created",
        key=b"order:0",
        headers=[("source", b"web"), ("trace", None)],
        timestamp_ms=at_minute(0),
    )
    report.say(f"one record      -> partition {first.partition}, offset {first.offset}")

    # One record per minute from nine o'clock on; calls of 100 records make batches of 100.
    for start in range(1, 1000, 100):
        stop = min(start + 100, 1000)
        orders.append_many([order_event(n) for n in range(start, stop)])
    log = orders.partition(0)
    report.say(f"999 more        -> the log holds [{log.start_offset}, {log.high_watermark})")

    segments_table(log, report)
    report.check("offsets run from 0 to 999 without a gap", offsets(log) == list(range(1000)))
    report.check("segments were sealed by record count", len(log.segments()) > 3)


def order_event(number: int) -> cordwood.Record:
    return cordwood.Record(
        value=b"paid %d" % number,
        key=b"order:%d" % (number % 50),
        timestamp_ms=at_minute(number),
    )


def at_minute(minute: int) -> int:
    return int((NINE_O_CLOCK + timedelta(minutes=minute)).timestamp() * 1000)


def offsets(log: cordwood.LogReader) -> list[int | None]:
    return [record.offset for record in log.read()]


def segments_table(log: cordwood.LogReader, report: Report) -> None:
    report.say(f"{'file':<26} {'offsets':>14} {'bytes':>8}  state")
    for segment in log.segments():
        span = f"[{segment.base_offset}, {segment.next_offset})"
        name = Path(segment.path).name
        report.say(f"{name:<26} {span:>14} {segment.size_bytes:>8}  {segment.state}")


def read_back(store: cordwood.Store, report: Report) -> None:
    report.title("2  Read by offset, by time, by key")
    log = store.topic("orders").partition(0)

    record = next(log.read(0))
    report.say(f"offset 0        -> {record.value!r}, {record.headers}")
    report.check(
        "headers are returned, including a null header", record.headers[1] == ("trace", None)
    )

    start = log.segments()[0].next_offset - 2
    across = [record.offset for record in log.read(start, max_records=4)]
    report.say(f"read({start}, max_records=4) -> offsets {across}")
    report.check(
        "a read continues over the end of a segment", across == list(range(start, start + 4))
    )

    half_past_ten = at_minute(90)
    found = log.offset_for_time(half_past_ten)
    report.say(f"offset_for_time(10:30) -> offset {found}")
    report.check("ten thirty is minute 90, so offset 90", found == 90)

    newest = log.find(b"order:7")
    report.check(
        "find(b'order:7') returns its newest record",
        newest is not None and newest.value == b"paid 957",
    )

    try:
        log.read(start=5000)
    except OffsetOutOfRangeError as error:
        report.say(f"read(5000)      -> {error}")
        report.check("the error carries both ends", (error.start, error.end) == (0, 1000))
    else:
        report.check("reading past the end is refused", False)


def follow(store: cordwood.Store, report: Report) -> None:
    report.title("3  Follow the end while another thread appends")
    clicks = store.create_topic("clicks")
    log = clicks.partition(0)
    end = log.end_offset
    seen: list[bytes | None] = []

    def tail() -> None:
        for record in log.follow(start=end, idle_timeout_ms=5000):
            seen.append(record.value)
            if record.value == b"click 19":
                return

    follower = threading.Thread(target=tail, name="follower")
    follower.start()
    for number in range(20):
        clicks.append(b"click %d" % number)
    follower.join()
    report.say(f"appended 20; the follower saw {len(seen)}, the last was {seen[-1]!r}")
    report.check("it saw every record once, in order", seen == [b"click %d" % n for n in range(20)])


def scan(store: cordwood.Store, report: Report) -> None:
    report.title("4  Scan to Arrow")
    log = store.topic("orders").partition(0)
    batches = list(log.scan(columns=["offset", "key", "value"]))
    rows = sum(batch.num_rows for batch in batches)
    report.say(f"schema          -> {', '.join(f'{f.name}: {f.type}' for f in batches[0].schema)}")
    report.say(f"{rows} rows in {len(batches)} record batch{'es' * (len(batches) != 1)}")
    report.check("as many rows as records", rows == 1000)


def commit(store: cordwood.Store, report: Report) -> None:
    report.title("5  A consumer group commits its progress")
    billing = store.group("billing")
    billing.commit({("orders", 0): 400})
    report.say('group("billing").commit({("orders", 0): 400})')
    going_on = billing.committed("orders", 0)
    rest = sum(1 for _ in store.topic("orders").partition(0).read(going_on))
    report.check("it continues at 400, with 600 records left", (going_on, rest) == (400, 600))


def read_only(directory: Path, report: Report) -> None:
    report.title("6  One writer, any number of readers")
    try:
        cordwood.open(directory)
    except DirectoryLockedError as error:
        report.say("a second writer is refused; the error names the owner:")
        report.say(f"  in use by {error.owner}")
    with cordwood.open(directory, read_only=True) as reader:
        log = reader.topic("orders").partition(0)
        report.check("a reader beside the writer sees all records", len(offsets(log)) == 1000)


# --- a killed process ---------------------------------------------------------------------------


def write_until_killed(directory: Path) -> None:
    """Append from several threads; report each offset to the parent once it is acknowledged."""
    store = cordwood.open(directory)
    topic = store.create_topic(WRITER_TOPIC, config={"durability": "disk", "segment.records": 500})

    def run(thread: int) -> None:
        number = 0
        while True:
            value = f"{thread}.{number}"
            placed = topic.append(value.encode())
            # One small write per line: lines of several threads never mix in a pipe.
            os.write(1, f"{placed.offset} {value}\n".encode())
            number += 1

    for thread in range(WRITER_THREADS):
        threading.Thread(target=run, args=(thread,), daemon=True).start()
    threading.Event().wait(WRITER_TIMEOUT_SECONDS)


def kill_a_writer(directory: Path, report: Report) -> None:
    report.title("7  Kill a process while it writes")
    report.say(f"a child appends from {WRITER_THREADS} threads, durability=disk: an append")
    report.say("returns only after an fsync, which all waiting threads share")
    acknowledged, status = acknowledged_before_the_kill(directory)
    report.say(f"killed with SIGKILL after {len(acknowledged)} acknowledged appends")
    report.check("the child died by the signal", status == -signal.SIGKILL)
    report.check("it had acknowledged something", len(acknowledged) > 0)

    with cordwood.open(directory) as store:
        log = store.topic(WRITER_TOPIC).partition(0)
        found = [(record.offset, record.value) for record in log.read()]
        there = dict(found)
        lost = [o for o, value in acknowledged.items() if there.get(o) != value.encode()]
        report.say(f"reopened: {len(found)} records, the log ends at {log.high_watermark}")
        report.say(f"acknowledged {len(acknowledged)}, lost {len(lost)} of them")
        report.check("nothing acknowledged was lost", not lost)
        report.check("offsets have no gap", [o for o, _ in found] == list(range(len(found))))
        report.check("recovery found no damage", not store.damages())
        placed = store.topic(WRITER_TOPIC).append(b"after the crash")
        report.check("the log continues where it ended", placed.offset == len(found))


def acknowledged_before_the_kill(directory: Path) -> tuple[dict[int, str], int]:
    child = subprocess.Popen(
        [sys.executable, os.fspath(Path(__file__).resolve()), "--writer", os.fspath(directory)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert child.stdout is not None
    lines: list[str] = []
    with child.stdout:
        lines.append(child.stdout.readline())  # the first acknowledgement: the writer is running
        killer = threading.Timer(WRITER_SECONDS, child.kill)
        killer.start()
        lines += child.stdout.readlines()
    killer.join()
    status = child.wait()
    # A last line without its end is an incomplete acknowledgement.
    pairs = [line.split() for line in lines if line.endswith("\n")]
    return {int(offset): value for offset, value in pairs}, status


# --- a damaged file -------------------------------------------------------------------------------


def flip_a_byte(directory: Path, report: Report) -> None:
    report.title("8  Flip one byte on the disk")
    with cordwood.open(directory) as store:
        segment = store.topic("orders").partition(0).segments()[1]
    path = Path(segment.path)
    position = segment.size_bytes // 4
    flip(path, position)
    report.say(f"changed byte {position} of {path.name}")

    with cordwood.open(directory) as store:
        log = store.topic("orders").partition(0)
        readable: list[int | None] = []
        damage: CorruptSegmentError | None = None
        try:
            readable += [record.offset for record in log.read()]
        except CorruptSegmentError as error:
            damage = error
        report.check("reading stops with an error, not with bad data", damage is not None)
        if damage is None or damage.next_offset is None:
            report.check("the error says where reading can continue", False)
            return
        report.say(f"file            -> {Path(damage.name).name}, byte {damage.position}")
        report.say(f"reason          -> {damage.reason}")
        report.say(f"offsets         -> [{damage.first_offset}, {damage.next_offset})")
        readable = [r.offset for r in log.read(stop=damage.first_offset)]
        readable += [r.offset for r in log.read(damage.next_offset)]
        lost = damage.next_offset - damage.first_offset
        report.say(f"{len(readable)} of 1000 records are readable, {lost} are in the bad batch")
        report.check("everything else stays readable", len(readable) + lost == 1000)
        report.check("the file was not changed", path.stat().st_size == segment.size_bytes)

    flip(path, position)
    with cordwood.open(directory, read_only=True) as reader:
        log_again = reader.topic("orders").partition(0)
        report.check(
            "with the byte restored, all records are readable", len(offsets(log_again)) == 1000
        )


def flip(path: Path, position: int) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes([byte ^ 0x01]))


# --- the program ------------------------------------------------------------------------------


def run(directory: Path) -> int:
    report = Report()
    started = time.monotonic()
    print(f"cordwood {cordwood.__version__}: a segmented commit log in your own process")
    with cordwood.open(directory) as store:
        steps: list[Callable[[cordwood.Store, Report], None]] = [
            append_and_roll,
            read_back,
            follow,
            scan,
            commit,
        ]
        for step in steps:
            step(store, report)
        read_only(directory, report)
    kill_a_writer(directory, report)
    flip_a_byte(directory, report)

    held = report.checks - report.failures
    print(f"\n{held} of {report.checks} checks held, in {time.monotonic() - started:.1f} s.")
    return 1 if report.failures else 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Shows the embedded library.")
    parser.add_argument(
        "--keep", metavar="DIR", type=Path, help="keep the files in a new directory DIR"
    )
    parser.add_argument("--writer", metavar="DIR", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.writer is not None:
        write_until_killed(arguments.writer)
        return 0
    if arguments.keep is not None:
        if arguments.keep.exists():
            parser.error(f"{arguments.keep} already exists; choose a new directory")
        status = run(arguments.keep)
        print(f"The files are in {arguments.keep}.")
        return status
    with tempfile.TemporaryDirectory(prefix="cordwood-demo-") as temporary:
        return run(Path(temporary))


if __name__ == "__main__":
    sys.exit(main())
