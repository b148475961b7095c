"""A metrics pipeline: raw values are kept for an hour, averages for a year.

    python examples/metrics_pipeline.py [DIRECTORY]

Machines append their load every ten seconds. A group reads the raw values and appends an average
per machine and minute to another topic. Retention deletes raw values by whole segments, so a
segment holds ten minutes. `explain_retention` says in advance which segment goes, and why.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import cordwood

MINUTE_MS = 60_000
MACHINES = ("atlas", "boreas")


def measure(raw: cordwood.Topic, begin_ms: int, end_ms: int) -> int:
    """Append a value for each machine every ten seconds, dated as if time had passed."""
    moments = range(begin_ms, end_ms, 10_000)
    for moment in moments:
        raw.append_many(
            cordwood.Record(
                b"%d" % (20 + 5 * number + moment // 10_000 % 7),
                key=name.encode(),
                timestamp_ms=moment,
            )
            for number, name in enumerate(MACHINES)
        )
    return len(moments) * len(MACHINES)


def average(store: cordwood.Store) -> int:
    """Append the averages of the raw values that the group has not seen yet."""
    sums: dict[tuple[bytes, int], list[int]] = defaultdict(list)
    with store.group("averages").reader("load", idle_timeout_ms=0) as reader:
        for record in reader:
            minute = record.timestamp_ms // MINUTE_MS * MINUTE_MS
            sums[record.key or b"", minute].append(int(record.value or b"0"))
        # The averages are durable before the block ends and the group's position is committed.
        store["load-by-minute"].append_many(
            cordwood.Record(b"%.2f" % (sum(values) / len(values)), key=name, timestamp_ms=minute)
            for (name, minute), values in sums.items()
        )
    return len(sums)


def main(directory: Path) -> None:
    now_ms = time.time_ns() // 1_000_000 // MINUTE_MS * MINUTE_MS
    with cordwood.open(directory) as store:
        hour = {"retention.ms": "1h", "segment.ms": "10m", "file.delete.delay.ms": 0}
        raw = store.create_topic("load", config=hour, exist_ok=True)
        store.create_topic("load-by-minute", config={"retention.ms": "365d"}, exist_ok=True)

        count = measure(raw, now_ms - 180 * MINUTE_MS, now_ms)
        print(f"{count} raw values became {average(store)} averages")

        [plan] = store.explain_retention("load")
        verdicts = [segment.verdict.value for segment in plan.segments]
        print("segments:", ", ".join(f"{verdicts.count(v)} {v}" for v in sorted(set(verdicts))))
        store.maintain()  # happens by itself in a running store

        oldest = next(iter(raw)).timestamp_ms
        print("the oldest raw value is", (now_ms - oldest) // MINUTE_MS, "minutes old")
        oldest = next(iter(store["load-by-minute"])).timestamp_ms
        print("the oldest average is", (now_ms - oldest) // MINUTE_MS, "minutes old")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
