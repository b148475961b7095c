"""Read a data directory of Kafka without a broker, without Java, and without changing a byte.

    python examples/kafka_directory.py [DIRECTORY [TOPIC]]

DIRECTORY is one of the `log.dirs` of a Kafka broker that was stopped, has crashed, or was backed
up. By default it is a directory in this checkout, written by Kafka 4.3. The program prints its
partitions and groups, and the first records of TOPIC, without those of aborted transactions.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa

import cordwood
from cordwood.errors import CordwoodError

SAMPLE = Path(__file__).resolve().parents[1] / "tests" / "golden" / "kafka-4.3" / "data"


def show_partitions(store: cordwood.ReadOnlyStore) -> None:
    print(f"{'partition':<20}{'offsets':>12}{'segments':>10}{'bytes':>12}")
    for name in store.topics():
        for number, log in enumerate(store.topic(name).partitions):
            offsets = f"{log.start_offset} to {log.high_watermark}"
            counts = f"{len(log.segments()):>10}{log.size_bytes:>12}"
            print(f"{f'{name}-{number}':<20}{offsets:>12}{counts}")


def show_groups(store: cordwood.ReadOnlyStore) -> None:
    for name in store.groups():
        places = sorted(store.group(name).committed().items())
        print(f"group {name}:", ", ".join(f"{topic}-{n} at {at}" for (topic, n), at in places))


def show_records(store: cordwood.ReadOnlyStore, name: str, count: int = 3) -> None:
    logs = store.topic(name).partitions
    batches = [batch for log in logs for batch in log.scan(isolation="read_committed")]
    if not batches:
        print(f"{name}: no records")
        return
    table = pa.Table.from_batches(batches)  # pandas, Polars and DuckDB can read it
    print(f"{name}: {table.num_rows} records, {table.nbytes} bytes as Arrow")
    for row in table.slice(0, count).to_pylist():
        print(f"  {row['offset']} {row['timestamp']:%F %T} {row['key']!r}: {row['value']!r}")


def main(directory: Path, topic: str | None) -> None:
    with cordwood.open(directory, read_only=True) as store:
        show_partitions(store)
        show_groups(store)
        if topic is not None:
            show_records(store, topic)


if __name__ == "__main__":
    given = sys.argv[1:] or [str(SAMPLE), "plain"]
    try:
        main(Path(given[0]), given[1] if len(given) > 1 else None)
    except CordwoodError as error:
        sys.exit(f"kafka_directory: {error}")
