"""The aborted transactions that end in a segment.

A reader that must not see aborted records asks here which producers' records to skip. The file
exists only where a transaction was aborted: most segments have none, and a missing file means
just that.
"""

from dataclasses import dataclass

from varve.errors import FormatError
from varve.format.index_entry import (
    ABORTED_ENTRY_SIZE,
    AbortedTransaction,
    decode_aborted_transaction,
    encode_aborted_transaction,
)
from varve.quantities import Offset
from varve.storage.entry_file import EntryFile
from varve.storage.files import FileSystem


@dataclass(frozen=True, slots=True, kw_only=True)
class AbortedTransactions:
    """What one segment knows of a range of offsets.

    `is_complete`: no later segment can hold another aborted transaction of the range.
    """

    transactions: list[AbortedTransaction]
    is_complete: bool


class TransactionIndex:
    """Aborted transactions in strictly increasing order of their last offset.

    One writer appends; any thread may collect meanwhile.
    """

    __slots__ = ("_file", "base_offset")

    def __init__(self, file: EntryFile, base_offset: Offset) -> None:
        self._file = file
        self.base_offset = base_offset

    @classmethod
    def open_active(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, max_bytes: int = 0
    ) -> "TransactionIndex":
        """With the entries of the file, if any; the file is created with the first entry."""
        file = EntryFile(fs, path, ABORTED_ENTRY_SIZE, skip_zeros=False)
        file.activate(max_bytes=max_bytes)
        return cls(file, base_offset)

    @classmethod
    def open_sealed(
        cls, fs: FileSystem, path: str, base_offset: Offset, *, mapped: bool = True
    ) -> "TransactionIndex":
        """For reading only. Touches no file before the first read; see `EntryFile` on `mapped`."""
        file = EntryFile(fs, path, ABORTED_ENTRY_SIZE, mapped=mapped, skip_zeros=False)
        return cls(file, base_offset)

    @property
    def path(self) -> str:
        return self._file.path

    @property
    def is_active(self) -> bool:
        return self._file.is_active

    @property
    def count(self) -> int:
        return self._file.count

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

    def flush(self) -> None:
        """Write out what was added, for readers in other processes. Not durable: see `sync`."""
        self._file.flush()

    def sync(self) -> None:
        """Flush and make durable. The caller syncs the directory when the file is new."""
        self._file.sync()

    def seal(self) -> None:
        """Sync, and take no more entries."""
        self._file.seal()

    def rename(self, path: str) -> None:
        """Move the file; a missing one stays missing."""
        self._file.rename(path)

    def remove(self) -> None:
        """Remove the file, if there is one."""
        self._file.remove()

    def release(self) -> None:
        """Drop the map of a sealed file until the next read, which then sees its growth."""
        self._file.release()

    def close(self) -> None:
        """Drop map and memory; what was added since the last flush is lost."""
        self._file.close()
