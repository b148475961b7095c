"""A work queue: several workers share the jobs of a topic, and a failed job is kept for later.

    python examples/work_queue.py [DIRECTORY]

Each worker is a reader of the group "thumbnails". The readers share the partitions. A job is done
at least once, so doing it twice must be harmless. Jobs of one picture have the same key and stay
in order. A job that fails goes to another topic with the reason, and the queue moves on.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path

import cordwood

WORKERS = 3


class Workshop:
    """The workers of one process. Each has a thread and a reader."""

    def __init__(self, store: cordwood.Store) -> None:
        self._store = store
        self._failed = store["failed-jobs"]
        self._lock = threading.Lock()
        self.done: Counter[str] = Counter()

    def run(self) -> None:
        threads = [threading.Thread(target=self._work) for _ in range(WORKERS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _work(self) -> None:
        """A worker of a service leaves out `idle_timeout_ms`: it waits for the next job."""
        group = self._store.group("thumbnails")
        with group.reader("jobs", idle_timeout_ms=300, commit_interval_ms=100) as reader:
            for record in reader:
                try:
                    self._do(json.loads(record.value or b"{}"))
                except ValueError as error:
                    reason = {"error": str(error).encode(), "offset": b"%d" % record.offset}
                    self._failed.append(record.value, key=record.key, headers=reason)

    def _do(self, job: dict[str, object]) -> None:
        width = job["width"]
        if not isinstance(width, int) or width <= 0:
            raise ValueError(f"a width of {width} pixels")
        with self._lock:
            self.done[str(job["picture"])] += 1


def main(directory: Path) -> None:
    with cordwood.open(directory) as store:
        jobs = store.create_topic("jobs", partitions=6, exist_ok=True)
        store.create_topic("failed-jobs", exist_ok=True)
        for number in range(60):
            job = {"picture": f"p{number % 5}", "width": 0 if number == 13 else 100 + number}
            jobs.append(json.dumps(job).encode(), key=b"p%d" % (number % 5))

        workshop = Workshop(store)
        workshop.run()

        print("done:", dict(sorted(workshop.done.items())))
        for record in store["failed-jobs"]:
            headers = dict(record.headers)
            print("failed:", (headers["error"] or b"").decode(), "in", record.value)
        left = sum(log.high_watermark for log in jobs.partitions) - sum(
            store.group("thumbnails").committed("jobs").values()
        )
        print("left:", left)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]))
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary))
