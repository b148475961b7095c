"""A store on the real disk whose owner stopped in the middle of a compaction swap."""

from __future__ import annotations

import contextlib
from pathlib import Path
from unittest import mock

import cordwood
from cordwood.log.partition.removal import segment_swap

TOPIC = "orders"


def store_with_a_stopped_swap(path: Path) -> dict[int, bytes]:
    """35 records of different keys, in segments that are being merged; returns them by offset.

    The replaced segments are marked as deleted, and no replacement has its final name yet.
    """
    config = {"cleanup.policy": "compact", "segment.records": "5", "min.cleanable.dirty.ratio": 0}
    records: dict[int, bytes] = {}
    with contextlib.suppress(OSError):
        store = cordwood.open(path)
        try:
            topic = store.create_topic(TOPIC, config=config)
            for number in range(35):
                appended = topic.append(b'{"id": %d}' % number, key=b"%d" % number)
                records[appended.offset] = b'{"id": %d}' % number
            with mock.patch.object(segment_swap, "place_swaps", side_effect=OSError("stopped")):
                store.compact(TOPIC, force=True)
        finally:
            store.close()
    names = [file.name for file in (path / f"{TOPIC}-0").iterdir()]
    assert any(name.endswith(".log.swap") for name in names)
    assert any(name.endswith(".log.deleted") for name in names)
    return records
