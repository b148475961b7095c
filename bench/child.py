"""Work that needs its own process: to be killed, or to have its memory measured.

python -m bench.child write DIRECTORY SYNCED_BYTES UNSYNCED_BYTES
    appends both, with a checkpoint in between, reports it, and waits to be killed
python -m bench.child memory DIRECTORY BYTES
    appends and scans that much, and reports the memory it took
"""

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from bench.measure import Stopwatch
from bench.workload import OS, TOPIC, log_files, log_of, make_values
from cordwood.log.store.store import Store, StoreSetup
from cordwood.quantities import KIB, MIB

ROOT = Path(__file__).resolve().parent.parent
_VALUE_BYTES = KIB
_WAIT_S = 3600  # far longer than the parent waits to kill it


@dataclass(frozen=True, slots=True, kw_only=True)
class KilledWriter:
    """The state of a killed writer: [synced_bytes, total_bytes) was never synced."""

    path: Path
    synced_bytes: int
    total_bytes: int

    @property
    def unsynced_bytes(self) -> int:
        return self.total_bytes - self.synced_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryUse:
    """The largest resident size of a process, and its speed."""

    peak_mb: float
    append_gb_per_s: float
    scan_gb_per_s: float


# --- called by the suite ----------------------------------------------------------------------


def kill_a_writer(path: Path, *, synced_bytes: int, unsynced_bytes: int) -> KilledWriter:
    """Start a process that appends, and kill it with SIGKILL."""
    with _child("write", path, synced_bytes, unsynced_bytes) as process:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        process.kill()
    return KilledWriter(
        path=path, synced_bytes=said["synced_bytes"], total_bytes=said["total_bytes"]
    )


def measure_memory(path: Path, total_bytes: int) -> MemoryUse:
    with _child("memory", path, total_bytes) as process:
        said, _ = process.communicate()
        if process.returncode:
            raise RuntimeError(f"the child that appends and scans exited with {process.returncode}")
    return MemoryUse(**json.loads(said))


def seconds_in_new_process(statement: str, *, before: str = "", after: str = "") -> float:
    """The duration of a statement in a new interpreter, without those of `before` and `after`."""
    program = (
        f"{before}\n"
        "import time; started = time.perf_counter()\n"
        f"{statement}\n"
        "print(time.perf_counter() - started)\n"
        f"{after}\n"
    )
    return float(
        subprocess.run(
            [sys.executable, "-c", program],
            check=True,
            capture_output=True,
            text=True,
            cwd=ROOT,
            env=environment_of_an_installation(),
        ).stdout
    )


def environment_of_an_installation() -> dict[str, str]:
    """Our environment, but Python may write .pyc files, as it does after an installation."""
    return {key: os.environ[key] for key in os.environ if key != "PYTHONDONTWRITEBYTECODE"}


@contextmanager
def _child(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    process = subprocess.Popen(
        [sys.executable, "-m", "bench.child", *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


# --- in the child -----------------------------------------------------------------------------


def write_until_killed(path: Path, synced_bytes: int, unsynced_bytes: int) -> None:
    values = make_values(_VALUE_BYTES)
    with Store([str(path)], StoreSetup()) as store:
        store.create_topic(TOPIC, config=OS)
        log = log_of(store)
        for pairs in values.calls(synced_bytes // _VALUE_BYTES):
            log.append_many(pairs)
        store.maintain()
        synced_size = log.size_bytes
        for pairs in values.calls(unsynced_bytes // _VALUE_BYTES):
            log.append_many(pairs)
        files = log_files(path)
        assert len(files) == 1, (
            files
        )  # one segment, so that a position in it is a position in the log
        facts = {"synced_bytes": synced_size, "total_bytes": log.size_bytes}
        print(json.dumps(facts), flush=True)
        time.sleep(_WAIT_S)


def append_and_scan(path: Path, total_bytes: int) -> None:
    values = make_values(_VALUE_BYTES, pool_bytes=MIB)  # small, because it counts as memory too
    append, scan = Stopwatch(), Stopwatch()
    with Store([str(path)], StoreSetup()) as store:
        store.create_topic(TOPIC, config=OS)
        log = log_of(store)
        with append:
            for pairs in values.calls(total_bytes // _VALUE_BYTES):
                log.append_many(pairs)
        with scan:
            rows = sum(batch.num_rows for batch in log.scan())
        assert rows == log.end_offset, (rows, log.end_offset)
        facts = {
            "peak_mb": _peak_bytes() / 1e6,
            "append_gb_per_s": total_bytes / append.seconds / 1e9,
            "scan_gb_per_s": total_bytes / scan.seconds / 1e9,
        }
        print(json.dumps(facts), flush=True)
        log.truncation.truncate_fully_and_start_at(0)  # so that closing does not wait for the disk


def _peak_bytes() -> int:
    """The largest resident size so far.

    On Linux not from `ru_maxrss`: there a child starts with the value of its parent.
    """
    status = Path("/proc/self/status")
    if status.exists():
        lines = status.read_text().splitlines()
        return next(int(line.split()[1]) * KIB for line in lines if line.startswith("VmHWM:"))
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def main(arguments: list[str]) -> None:
    work, path, *sizes = arguments
    if work == "write":
        write_until_killed(Path(path), int(sizes[0]), int(sizes[1]))
    else:
        append_and_scan(Path(path), int(sizes[0]))


if __name__ == "__main__":
    main(sys.argv[1:])
