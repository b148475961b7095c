"""Compact the changelog of accounts: keep the newest value of each account, at its offset."""

from __future__ import annotations

import cordwood
from demo.cordwood_command import run_cordwood
from demo.demo_plan import ACCOUNTS
from demo.quantities_shown import shown_bytes, shown_s
from demo.scene import Scene

_Place = tuple[int, int]  # partition, offset
_Size = tuple[int, int, int]  # records, segments, bytes


def compact(scene: Scene) -> None:
    scene.stop_flow()
    left = scene.producer.flush()
    scene.screen.check(
        f"all {scene.producer.produced:,} events so far are acknowledged",
        left == 0 and scene.producer.in_flight == 0 and not scene.producer.refused,
    )
    newest, before = _looked_at(scene)

    command = ("compact", ACCOUNTS, "--at", scene.broker.address)
    scene.screen.command(f"cordwood {' '.join(command)}")
    results = run_cordwood(*command)
    took_s = sum(float(found["seconds"]) for found in results)

    kept, after = _looked_at(scene)
    scene.watch.note_cleaned(
        {(ACCOUNTS, int(found["partition"])): int(found["cleaned_up_to"]) for found in results}
    )
    scene.watch.look()
    scene.recording.mark("compacted")
    scene.screen.table(
        ("accounts", "records", "segments", "bytes"),
        [("before", *_row(before)), ("after", *_row(after))],
    )
    scene.recording.figure("compaction", f"{before[0]:,} → {after[0]:,} records")
    _check(scene, newest, kept, after[0], took_s)


def _check(
    scene: Scene,
    newest: dict[bytes, tuple[_Place, bytes | None]],
    kept: dict[bytes, tuple[_Place, bytes | None]],
    record_count: int,
    took_s: float,
) -> None:
    balances = {key: value for key, (_, value) in kept.items()}
    closed = sum(value is None for value in balances.values())
    scene.screen.check(
        f"after {shown_s(took_s)} there is one record for each of {len(kept):,} accounts; "
        f"{closed} are tombstones of closed accounts, which stay for a day",
        record_count == len(kept),
    )
    scene.screen.check(
        "each record has the last value produced, at the same offset as before",
        balances == scene.tally.accounts and kept == newest,
    )


def _looked_at(scene: Scene) -> tuple[dict[bytes, tuple[_Place, bytes | None]], _Size]:
    """Read from the files, beside the broker: the newest record of each key, and the sizes."""
    newest: dict[bytes, tuple[_Place, bytes | None]] = {}
    records = 0
    with cordwood.open(scene.files.store, read_only=True) as reader:
        logs = reader.topic(ACCOUNTS).partitions
        for log in logs:
            for record in log.read():
                assert record.key is not None
                assert record.offset is not None
                newest[record.key] = ((log.partition, record.offset), record.value)
                records += 1
        segments = sum(len(log.segments()) for log in logs)
        return newest, (records, segments, sum(log.size_bytes for log in logs))


def _row(size: _Size) -> tuple[str, str, str]:
    records, segments, size_bytes = size
    return f"{records:,}", f"{segments:,}", shown_bytes(size_bytes)
