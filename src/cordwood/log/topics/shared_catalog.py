"""The topic catalog of a store that several processes run together: see `store_share`.

Both classes show a catalog in which everything that others own is absent. On the disk nothing is:
for a reader, and for a single process later, the directory has all partitions.
"""

import threading
from collections.abc import Mapping, Sequence
from typing import Final

from cordwood.errors import StorageError
from cordwood.log.topics.catalog_files import CatalogKeeper, CatalogReader
from cordwood.log.topics.store_share import StoreShare
from cordwood.log.topics.topic_catalog import Catalog, CatalogChange, TopicEntry
from cordwood.storage.files import FileSystem
from cordwood.value_class import replace

_NO_CHANGE: Final = CatalogChange()


class KeptForOthers:
    """The keeper's catalog. It writes the files; all partitions are absent here.

    Any thread may use it. `whole` is the catalog as it is on the disk.
    """

    is_new = False

    def __init__(self, files: CatalogKeeper, share: StoreShare) -> None:
        self._files = files
        self._share = share
        self._shown: tuple[Catalog, Catalog] | None = None

    @property
    def whole(self) -> Catalog:
        return self._files.catalog

    @property
    def catalog(self) -> Catalog:
        whole, shown = self._files.catalog, self._shown
        if shown is None or shown[0] is not whole:
            shown = (whole, _shared(whole, self._share))
            self._shown = shown
        return shown[1]

    @property
    def topics(self) -> Mapping[str, TopicEntry]:
        return self.catalog.topics

    def apply(self, change: CatalogChange) -> None:
        """Make a change. Durable on return; if it fails, nothing has changed.

        Deleted topics are not forgotten: only their owners know whether the directories are gone.
        The next opening by a single process looks.
        """
        put = tuple(replace(entry, absent=0) for entry in change.put)
        change = replace(change, put=put, forget=())
        if change != _NO_CHANGE:
            self._files.apply(change)

    def begin(self, entry: TopicEntry, number: int) -> None:
        """A worker asks: a partition is about to acknowledge its first records."""
        self._files.begin(entry, number)

    def sync_copies(self) -> None:
        """Make the second files durable too."""
        self._files.sync_copies()


class CatalogOfShare:
    """A worker's catalog, in memory: what the keeper has decided, as far as it was told.

    Any thread may use it. It begins with the files, beside the keeper who may be changing them.
    """

    is_new = False

    def __init__(self, fs: FileSystem, directories: Sequence[str], share: StoreShare) -> None:
        found = CatalogReader(fs, directories).read()
        if found is None:
            raise StorageError(f"{directories[0]} has no topic catalog: its keeper has not begun")
        self._share = share
        self._lock = threading.Lock()
        self._catalog = _shared(found, share)

    @property
    def catalog(self) -> Catalog:
        return self._catalog

    @property
    def topics(self) -> Mapping[str, TopicEntry]:
        return self._catalog.topics

    def apply(self, change: CatalogChange) -> None:
        """Note a change that the keeper has made durable already."""
        with self._lock:
            self._catalog = self._catalog.after(change)

    def begin(self, entry: TopicEntry, number: int) -> None:
        """A partition is about to acknowledge its first records. Durable on return."""
        assert self._share.begin is not None
        known = self._catalog.topics.get(entry.name)
        if known is None or known.topic_id != entry.topic_id or known.has_begun(number):
            return
        self._share.begin(entry.name, entry.topic_id, number)
        self.apply(CatalogChange(begin={entry.name: (number,)}))

    def sync_copies(self) -> None:
        """The keeper does."""


def _shared(catalog: Catalog, share: StoreShare) -> Catalog:
    topics = {
        name: replace(entry, absent=share.absent(name, entry.partitions))
        for name, entry in catalog.topics.items()
    }
    return replace(catalog, topics=topics)
