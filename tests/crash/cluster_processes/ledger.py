"""What the clients of a run have seen: gathered by their threads, kept in a file."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict
from pathlib import Path
from typing import Any

from crash.cluster_processes.verdict import CommitRead, Observations, Stored


class Ledger:
    """What all threads have seen. Any thread may call it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.seen = Observations()
        self._values: dict[tuple[int, int], str] = {}

    def sending(self, life: str, partition: int, value: str) -> None:
        with self._lock:
            self.seen.sent.setdefault((life, partition), []).append(value)
            self.seen.unanswered += 1

    def answered(self, stored: Stored | None, error: str = "") -> None:
        with self._lock:
            self.seen.unanswered -= 1
            if stored is not None:
                self.seen.acknowledged.append(stored)
            else:
                self.seen.errors[error] = self.seen.errors.get(error, 0) + 1

    def read(self, stored: Stored) -> None:
        with self._lock:
            place = (stored.partition, stored.offset)
            known = self._values.setdefault(place, stored.value)
            if known != stored.value:
                self.seen.conflicts.append((Stored(*place, known), stored))

    def fatal(self, text: str) -> None:
        with self._lock:
            self.seen.fatal.append(text)

    def reset(self, text: str) -> None:
        with self._lock:
            self.seen.resets.append(text)

    def commit_read(self, read: CommitRead) -> None:
        with self._lock:
            self.seen.commits.append(read)

    def write(self, path: Path) -> None:
        with self._lock:
            seen = self.seen
            seen.read = [Stored(*place, value) for place, value in self._values.items()]
            path.write_text(encode_observations(seen))


def encode_observations(seen: Observations) -> str:
    fields: dict[str, Any] = asdict(seen)
    fields["sent"] = [[life, part, values] for (life, part), values in seen.sent.items()]
    fields["final"] = list(seen.final.items())
    return json.dumps(fields)


def decode_observations(text: str) -> Observations:
    fields = json.loads(text)
    return Observations(
        sent={(life, partition): values for life, partition, values in fields["sent"]},
        acknowledged=[Stored(*each) for each in fields["acknowledged"]],
        read=[Stored(*each) for each in fields["read"]],
        conflicts=[(Stored(*a), Stored(*b)) for a, b in fields["conflicts"]],
        resets=fields["resets"],
        fatal=fields["fatal"],
        commits=[CommitRead(*each) for each in fields["commits"]],
        final={
            partition: [(offset, value) for offset, value in records]
            for partition, records in fields["final"]
        },
        errors=fields["errors"],
        unanswered=fields["unanswered"],
    )
