"""A reader of a group that is killed: the next one continues, and no record is skipped."""

import subprocess
import sys
from pathlib import Path

import pytest

import cordwood

RECORDS = 5_000
# A reader waits when the pipe is full. So it is at most some hundred lines ahead of this process,
# however late the kill comes, and the next one has something to read.
PIPE_BYTES = 4096
THREADS = """
import sys, cordwood
with cordwood.open(sys.argv[1]) as store:
    reader = store.group("g").reader("orders", commit_interval_ms=2, idle_timeout_ms=100)
    with reader:
        for record in reader:
            print(f'{int(record.value):063}', flush=True)
"""
TASKS = """
import asyncio, sys, cordwood
async def main():
    async with cordwood.aio.open(sys.argv[1]) as store:
        options = {"commit_interval_ms": 2, "idle_timeout_ms": 100}
        async with store.group("g").reader("orders", **options) as reader:
            async for record in reader:
                print(f'{int(record.value):063}', flush=True)
asyncio.run(main())
"""


@pytest.mark.parametrize("program", [THREADS, TASKS], ids=["threads", "tasks"])
def test_a_reader_that_is_killed_and_started_again_skips_nothing(
    tmp_path: Path, program: str
) -> None:
    data = tmp_path / "data"
    with cordwood.open(data) as store:
        topic = store.create_topic("orders", partitions=3)
        topic.append_many([(b"%d" % n, b"%d" % n) for n in range(RECORDS)])
    handled: list[int] = []

    for lines in (100, 800, 1, 1500):
        reader = subprocess.Popen(
            [sys.executable, "-c", program, str(data)],
            stdout=subprocess.PIPE,
            text=True,
            pipesize=PIPE_BYTES,
        )
        assert reader.stdout is not None
        for _ in range(lines):
            handled.append(int(reader.stdout.readline()))
        reader.kill()
        # The rest of what it printed was handled too, but for a line that was cut.
        whole, _, _ = reader.stdout.read().rpartition("\n")
        handled += [int(line) for line in whole.splitlines()]
        reader.wait()
        reader.stdout.close()
    last = subprocess.run(
        [sys.executable, "-c", program, str(data)], capture_output=True, text=True, check=True
    )
    at_the_end = [int(line) for line in last.stdout.splitlines()]

    # A record counts as handled once the next one is asked for, and a line is out by then. So a
    # record that no reader printed was skipped.
    assert set(handled) | set(at_the_end) == set(range(RECORDS))
    assert len(at_the_end) < RECORDS, "it did not resume"
    with cordwood.open(data) as store:
        assert sum(store.group("g").committed("orders").values()) == RECORDS
