"""The ends of several logs at a moment when no publication is visible in part.

The parts of a publication become visible log by log, within microseconds. A reader of several
logs up to "now" that must not take one part without the others uses `whole_ends`. The ledger
names the logs of the last publication, and where it begins and ends in each. While one of these
logs does not show it yet, `whole_ends` reports it in none of them.
"""

import time
from collections.abc import Iterable
from typing import Final, Protocol

from cordwood.log.beside.read_only_log import ReadOnlyLog
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.publishing.publication_ledger import Publications, read_publications
from cordwood.log.topics.topic import Topic
from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem, RealFileSystem

_LOOKS: Final = 50
_PAUSE_S: Final = 0.002


class ReadableStore(Protocol):
    """A store whose logs can be read: open for writing or for reading only."""

    @property
    def data_dirs(self) -> list[str]: ...

    def topic(self, name: str) -> Topic[PartitionLog] | Topic[ReadOnlyLog]: ...


def whole_ends(
    store: ReadableStore, topics: Iterable[str], *, fs: FileSystem | None = None
) -> dict[tuple[str, int], Offset]:
    """The high watermark of each partition, with each publication included whole or not at all."""
    files = fs or RealFileSystem()
    names = list(topics)
    before = read_publications(files, store.data_dirs)
    for _ in range(_LOOKS):
        ends = {
            (name, log.partition): log.high_watermark
            for name in names
            for log in store.topic(name).partitions
        }
        after = read_publications(files, store.data_dirs)
        if after.generation == before.generation:
            break
        before = after
        time.sleep(_PAUSE_S)
    return _bounded(store, after, ends)


def _bounded(
    store: ReadableStore, publications: Publications, ends: dict[tuple[str, int], Offset]
) -> dict[tuple[str, int], Offset]:
    latest = {
        (place.topic, place.partition): offsets
        for place, offsets in publications.latest.items()
        if (place.topic, place.partition) in ends
        and store.topic(place.topic).topic_id == place.topic_id
    }
    if all(ends[place] >= end for place, (_, end) in latest.items()):
        return ends
    return {
        place: min(end, latest[place][0]) if place in latest else end for place, end in ends.items()
    }
