"""What a power cut takes from the files of a killed process: bytes that were not synced.

A kill alone loses nothing that was written. The marks of a log say how far it is on the disk; of
what comes behind, a random part stays. Names and indexes stay: the simulated disk takes those.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.file_names import HIGH_WATERMARK
from cordwood.storage.files import RealFileSystem
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile


def lose_unsynced(directory: Path, rng: Random) -> int:
    """Cut the logs of a store that no process has open; the number of bytes that are gone."""
    return sum(_cut(marks.parent, rng) for marks in sorted(directory.glob(f"*/{HIGH_WATERMARK}")))


def _cut(partition: Path, rng: Random) -> int:
    marks = HighWatermarkFile(RealFileSystem(), str(partition), writable=False)
    try:
        durable = marks.read().durable
    finally:
        marks.close()
    segment = max(partition.glob("*.log"), default=None)
    if segment is None or durable is None or int(segment.stem) > durable:
        return 0
    size = segment.stat().st_size
    kept = rng.randint(_position_of(segment, durable), size)
    os.truncate(segment, kept)
    return size - kept


def _position_of(segment: Path, offset: int) -> int:
    """Where the first batch at or behind `offset` begins."""
    data = memoryview(segment.read_bytes())
    decoder, position = BatchDecoder(), 0
    while count := decoder.scan(data, position, len(data)):
        for index in range(count):
            if decoder.field(index, tables.B_BASE_OFFSET) >= offset:
                return int(decoder.field(index, tables.B_POSITION))
        position = decoder.position
    return position
