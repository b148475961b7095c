"""The aborted transactions that end in a segment.

A reader that must not see aborted records finds here which producers' records to skip. The file
exists only if a transaction was aborted; for most segments it is missing.
"""

from typing import Final, Self

from cordwood.errors import FormatError
from cordwood.format.index_entry import (
    ABORTED_ENTRY,
    ABORTED_ENTRY_SIZE,
    AbortedTransaction,
    decode_aborted_transaction,
    decode_aborted_transactions,
    encode_aborted_transaction,
)
from cordwood.quantities import INT32_MAX, Offset
from cordwood.storage.files import FileSystem
from cordwood.storage.indexes.entry_file import floor_slot
from cordwood.storage.indexes.entry_index import EntryIndex
from cordwood.value_class import dataclass

_LAST_OFFSET: Final = 3  # its number among the fields of an entry


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransactions:
    """The aborted transactions that one segment has for a range of offsets.

    `is_complete`: no later segment can have another aborted transaction of the range.
    """

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex(EntryIndex):
    """Aborted transactions in strictly increasing order of their last offset."""

    __slots__ = ()

    _ENTRY_SIZE = ABORTED_ENTRY_SIZE
    _SKIPS_ZEROS = False

    @classmethod
    def open_active(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, is_synced: bool = False
    ) -> Self:
        """Open with the entries of the file, if any; the first entry creates the file."""
        file = cls._file_at(fs, path)
        # A segment may hold any number of short transactions.
        file.activate(max_bytes=INT32_MAX, is_synced=is_synced)
        return cls(file, base_offset)

    @property
    def last_offset(self) -> Offset:
        """Last offset of the last entry; one below the base offset if there is none."""
        entries = self._file.entries
        if not entries:
            return Offset(self.base_offset - 1)
        last = decode_aborted_transaction(entries, len(entries) - ABORTED_ENTRY_SIZE)
        return last.last_offset

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an entry, in memory: see `flush`. `FormatError` unless its last offset is largest."""
        if self.count and transaction.last_offset <= self.last_offset:
            raise FormatError(
                f"last offset {transaction.last_offset} is not beyond "
                f"the last entry's, {self.last_offset}"
            )
        self._file.append(encode_aborted_transaction(transaction))

    def entries(self) -> list[AbortedTransaction]:
        """All entries, in order."""
        return list(decode_aborted_transactions(self._file.entries))

    def collect(self, *, fetch_start: Offset, upper_bound: Offset) -> AbortedTransactions:
        """The transactions that overlap `[fetch_start, upper_bound)`."""
        entries = self._file.entries
        found = []
        first = self._first_ending_at(fetch_start)
        for transaction in decode_aborted_transactions(entries, first * ABORTED_ENTRY_SIZE):
            if transaction.first_offset < upper_bound:
                found.append(transaction)
            # Everything below the last stable offset was decided by then, so a transaction that
            # aborts later starts at or after it.
            if transaction.last_stable_offset >= upper_bound:
                return AbortedTransactions(transactions=found, is_complete=True)
        return AbortedTransactions(transactions=found, is_complete=False)

    def _first_ending_at(self, offset: Offset) -> int:
        """The first slot whose transaction ends at or after `offset`."""
        return 1 + floor_slot(self._file.entries, ABORTED_ENTRY, _LAST_OFFSET, offset - 1)

    def truncate_to(self, offset: Offset) -> None:
        """Drop the entries whose last offset is at or after `offset`."""
        entries = self.entries()
        kept = sum(transaction.last_offset < offset for transaction in entries)
        if kept < len(entries):
            self._file.truncate_to(kept)

    def sanity_check(self) -> None:
        """Raise `FormatError` unless the entries can be this segment's. Reads every entry."""
        self._file.check_size()
        last_offset = self.base_offset - 1
        for slot, transaction in enumerate(self.entries()):
            if transaction.last_offset <= last_offset:
                raise FormatError(
                    f"last offset {transaction.last_offset} is not beyond {last_offset}",
                    position=slot * ABORTED_ENTRY_SIZE,
                )
            last_offset = transaction.last_offset
