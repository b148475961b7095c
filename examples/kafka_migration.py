"""Move from Kafka: copy the data directory of a stopped broker, check the copy, go on with it.

    python examples/kafka_migration.py [KAFKA_DIRECTORY [NEW_DIRECTORY]]

The formats are the same, so nothing is converted: topics, offsets, keys, timestamps and the
positions of groups stay. The original is only read. By default it is a directory in this checkout,
written by Kafka 4.3.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

import cordwood
from cordwood.errors import CordwoodError

SAMPLE = Path(__file__).resolve().parents[1] / "tests" / "golden" / "kafka-4.3" / "data"

Ends = dict[str, tuple[int, int]]
Positions = dict[str, dict[tuple[str, int], int]]


def ends(store: cordwood.Store | cordwood.ReadOnlyStore) -> Ends:
    """First and next offset of each partition."""
    return {
        log.name: (log.start_offset, log.high_watermark)
        for name in store.topics()
        for log in store.topic(name).partitions
    }


def positions(store: cordwood.Store | cordwood.ReadOnlyStore) -> Positions:
    return {name: dict(store.group(name).committed()) for name in store.groups()}


def migrate(kafka: Path, new: Path) -> None:
    with cordwood.open(kafka, read_only=True) as original:
        wanted = ends(original), positions(original)
        damages = original.damages()
    if damages:
        raise SystemExit(f"the original is damaged: {damages[0]}")

    shutil.copytree(kafka, new)  # fails if `new` exists

    with cordwood.open(new) as store:  # takes the topics over and recovers what a crash left
        if (ends(store), positions(store)) != wanted:
            raise SystemExit("the copy differs from the original")
        count = sum(end - start for start, end in wanted[0].values())
        print(f"{len(store.topics())} topics, {len(wanted[0])} partitions, {count} offsets")
        print("groups:", ", ".join(store.groups()))

        name = store.topics()[0]
        placed = store[name].append(b"the first record after the move", partition=0)
        print(f"appended to {name}-0 at offset {placed.offset}")
    print(f"next: cordwood serve --dir {new.name} --port 9092")


if __name__ == "__main__":
    source = Path(sys.argv[1]) if len(sys.argv) > 1 else SAMPLE
    try:
        if len(sys.argv) > 2:
            migrate(source, Path(sys.argv[2]))
        else:
            with tempfile.TemporaryDirectory() as temporary:
                migrate(source, Path(temporary) / "data")
    except (CordwoodError, OSError) as error:
        sys.exit(f"kafka_migration: {error}")
