"""Reads a store at intervals, beside its writer, and records its segments."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import cordwood
from cordwood.errors import CordwoodError
from demo.recording import ACTIVE, ARCHIVED, COMPACTED, SEALED, Recording, SegmentKey

_INTERVAL_S: Final = 0.2
_LOOKS_PER_LISTING: Final = 2  # opening the store costs more than counting


class StoreWatch:
    """Runs a thread from `start` to `close`. Takes no lock of the store and writes nothing."""

    def __init__(self, store: Path, topics: tuple[str, ...], recording: Recording) -> None:
        self._store = store
        self._topics = topics
        self._recording = recording
        self._cleaned: Mapping[tuple[str, int], int] = {}
        self._is_over = threading.Event()
        self._looking = threading.Lock()  # what was seen earlier is recorded earlier
        self._thread = threading.Thread(target=self._run, name="store watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Read the store once more and stop. Safe to repeat."""
        if self._thread.is_alive():
            self._is_over.set()
            self._thread.join()
            self.look()

    def note_cleaned(self, cleaned: Mapping[tuple[str, int], int]) -> None:
        """Set how far each log was compacted, which only its writer knows."""
        self._cleaned = dict(cleaned)

    def look(self) -> None:
        """Record the current segments."""
        self._recording.count()
        with self._looking:
            try:
                self._recording.see_segments(self._seen())
            except (CordwoodError, OSError):
                return  # files are being replaced or removed right now: try again at the next look

    def _run(self) -> None:
        turn = 0
        while not self._is_over.wait(_INTERVAL_S):
            turn += 1
            if turn % _LOOKS_PER_LISTING:
                self._recording.count()
            else:
                self.look()

    def _seen(self) -> dict[SegmentKey, tuple[str, int, int]]:
        """The current segments. Opens the store each time, to see compacted segments too."""
        seen: dict[SegmentKey, tuple[str, int, int]] = {}
        with cordwood.open(self._store, read_only=True) as store:
            for name in self._topics:
                for log in store.topic(name).partitions:
                    cleaned = self._cleaned.get((name, log.partition), 0)
                    segments = log.view().segments
                    for index, segment in enumerate(segments):
                        end = segments.end_of(index)
                        state = SEALED
                        if segment.is_archived:
                            state = ARCHIVED
                        elif index == len(segments) - 1:
                            state = ACTIVE
                        elif end <= cleaned:
                            state = COMPACTED
                        key = SegmentKey(name, log.partition, segment.base_offset)
                        seen[key] = (state, segment.size, end)
        return seen
