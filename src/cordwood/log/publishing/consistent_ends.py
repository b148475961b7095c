"""Where logs end, at a moment that no publication is half visible at.

The parts of a publication become visible log by log, within microseconds. Who reads several logs
up to "now" and must not take one part without the others asks here. The ledger names the logs of
the last publication and where it begins and ends in each: while one of them does not show it yet,
none of them does here.
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
    """A store whose logs can be read: the owner's, or one opened for reading."""

    @property
    def data_dirs(self) -> list[str]: ...

    def topic(self, name: str) -> Topic[PartitionLog] | Topic[ReadOnlyLog]: ...


def whole_ends(
    store: ReadableStore, topics: Iterable[str], *, fs: FileSystem | None = None
) -> dict[tuple[str, int], Offset]:
    """The high watermark of each partition, with every publication whole or not at all."""
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
