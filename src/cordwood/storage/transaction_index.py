"""The aborted transactions that end in a segment.

A reader that must not see aborted records asks here which producers' records to skip. The file
exists only where a transaction was aborted: most segments have none, and a missing file means
just that.
"""

from dataclasses import dataclass
from typing import Self

from cordwood.errors import FormatError
from cordwood.format.index_entry import (
    ABORTED_ENTRY_SIZE,
    AbortedTransaction,
    decode_aborted_transaction,
    encode_aborted_transaction,
)
from cordwood.quantities import Offset
from cordwood.storage.entry_index import EntryIndex
from cordwood.storage.files import FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransactions:
    """What one segment knows of a range of offsets.

    `is_complete`: no later segment can hold another aborted transaction of the range.
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
        cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int = 0
    ) -> Self:
        """With the entries of the file, if any; the file is created with the first entry."""
        file = cls._file_at(fs, path)
        file.activate(max_bytes=max_bytes)
        return cls(file, base_offset)

    @property
    def last_offset(self) -> Offset:
        """Last offset of the last entry; one below the base offset when there is none."""
        entries = self._file.entries
        if not entries:
            return Offset(self.base_offset - 1)
        last = decode_aborted_transaction(entries, len(entries) - ABORTED_ENTRY_SIZE)
        return last.last_offset

    def append(self, transaction: AbortedTransaction) -> None:
        """Add one. In memory: see `flush`. `FormatError` unless its last offset is the largest."""
        if self.count and transaction.last_offset <= self.last_offset:
            raise FormatError(
                f"last offset {transaction.last_offset} is not beyond "
                f"the last entry's, {self.last_offset}"
            )
        self._file.append(encode_aborted_transaction(transaction))

    def entries(self) -> list[AbortedTransaction]:
        """All of them, in order."""
        entries = self._file.entries
        return [
            decode_aborted_transaction(entries, position)
            for position in range(0, len(entries), ABORTED_ENTRY_SIZE)
        ]

    def collect(self, *, fetch_start: Offset, upper_bound: Offset) -> AbortedTransactions:
        """Those that overlap `[fetch_start, upper_bound)`."""
        found = []
        for transaction in self.entries():
            if transaction.last_offset >= fetch_start and transaction.first_offset < upper_bound:
                found.append(transaction)
            # Everything below the last stable offset was decided by then, so what is aborted
            # later starts at or beyond it.
            if transaction.last_stable_offset >= upper_bound:
                return AbortedTransactions(transactions=found, is_complete=True)
        return AbortedTransactions(transactions=found, is_complete=False)

    def truncate_to(self, offset: Offset) -> None:
        """Drop those whose last offset is at or beyond `offset`."""
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
