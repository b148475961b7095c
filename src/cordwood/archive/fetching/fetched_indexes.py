"""The indexes of an archived segment, each fetched when it is asked for."""

from collections.abc import Callable

from cordwood.format.file_names import FileKind
from cordwood.storage.files import FileSystem
from cordwood.storage.indexes.key_index import KeyIndex
from cordwood.storage.indexes.offset_index import OffsetIndex
from cordwood.storage.indexes.time_index import TimeIndex
from cordwood.storage.indexes.transaction_index import TransactionIndex
from cordwood.storage.segment_parts.segment_names import SegmentNames


class FetchedIndexes:
    """The indexes of one copy in the archive as `ReadableIndexes`. Any thread may read them.

    `fetch` brings the file of a kind into the cache, unless it is there.
    """

    __slots__ = ("_fetch", "_key", "_offset", "_time", "_transaction")

    def __init__(
        self, fs: FileSystem, names: SegmentNames, fetch: Callable[[FileKind], None]
    ) -> None:
        base = names.base_offset
        self._fetch = fetch
        self._offset = OffsetIndex.open_sealed(fs, names.path(FileKind.INDEX), base)
        self._time = TimeIndex.open_sealed(fs, names.path(FileKind.TIMEINDEX), base)
        self._transaction = TransactionIndex.open_sealed(fs, names.path(FileKind.TXNINDEX), base)
        self._key = KeyIndex(fs, names.path(FileKind.KEYINDEX))

    @property
    def offset(self) -> OffsetIndex:
        self._fetch(FileKind.INDEX)
        return self._offset

    @property
    def time(self) -> TimeIndex:
        self._fetch(FileKind.TIMEINDEX)
        return self._time

    @property
    def transaction(self) -> TransactionIndex:
        self._fetch(FileKind.TXNINDEX)
        return self._transaction

    @property
    def key(self) -> KeyIndex:
        self._fetch(FileKind.KEYINDEX)
        return self._key

    def release(self) -> None:
        """Close the files until the next read."""
        self._offset.release()
        self._time.release()
        self._transaction.release()
        self._key.release()
