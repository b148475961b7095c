"""Counts the keys of a log and the size of their newest records, in bounded memory.

Keys are distinguished by 64 bits of a hash. Up to `KEYS_MAX` keys are all kept, and the figures
are exact. Beyond that, only keys with a hash in the lower half are kept, then in the lower
quarter, and so on. They are a fair sample, and the figures are scaled up.

pyarrow does the counting. It is imported with the first records.
"""

from array import array
from typing import TYPE_CHECKING, Any, Final

from cordwood.quantities import INT64_MAX

if TYPE_CHECKING:
    import pyarrow as pa

KEYS_MAX: Final = 1 << 20  # about 40 MB while they are merged
_PENDING_ROWS: Final = 1 << 19
_HASH_BITS: Final = 64
_NAMES: Final = ("hash", "size", "is_tombstone")


class KeySample:
    """The newest record of each key, or of a sample of the keys. For one thread.

    Invariant: kept hashes are below 2^64 >> `halvings`, and there are at most `keys_max` of
    them once `settle` has run.
    """

    def __init__(self, keys_max: int = KEYS_MAX) -> None:
        self._keys_max = keys_max
        self._halvings = 0
        self._kept: pa.Table | None = None
        self._pending: list[pa.Table] = []
        self._pending_rows = 0

    # --- taking in ---------------------------------------------------------------------------

    def add(
        self, hashes: "array[int]", sizes: "pa.Array[Any]", tombstones: "pa.Array[Any]"
    ) -> None:
        """Add records in order of their offsets; a hash of 0 means no key."""
        import pyarrow as pa
        import pyarrow.compute as pc

        column = pa.Array.from_buffers(pa.uint64(), len(hashes), [None, pa.py_buffer(hashes)])
        rows = pa.table([column, sizes, tombstones], names=list(_NAMES))
        zero = pa.scalar(0, pa.uint64())
        self._append(rows.filter(pc.greater(column, zero)))

    def merge(self, other: "KeySample") -> None:
        """Add the keys of another log; a key of both counts once."""
        other.settle()
        self._halvings = max(self._halvings, other._halvings)
        if other._kept is not None:
            self._append(other._kept)
        self.settle()

    def _append(self, rows: "pa.Table") -> None:
        chosen = self._below_bound(rows)
        self._pending.append(chosen)
        self._pending_rows += chosen.num_rows
        if self._pending_rows >= _PENDING_ROWS:
            self.settle()

    def _below_bound(self, rows: "pa.Table") -> "pa.Table":
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self._halvings:
            return rows
        bound = pa.scalar(1 << (_HASH_BITS - self._halvings), pa.uint64())
        return rows.filter(pc.less(rows.column("hash"), bound))

    def settle(self) -> None:
        """Merge the added records: keep the last record of each key."""
        if not self._pending:
            return
        import pyarrow as pa

        tables = [*([] if self._kept is None else [self._kept]), *self._pending]
        self._pending, self._pending_rows = [], 0
        together = self._below_bound(pa.concat_tables(tables))
        grouped = pa.TableGroupBy(together, ["hash"], use_threads=False).aggregate(
            [("size", "last"), ("is_tombstone", "last")]
        )
        kept = grouped.select(["hash", "size_last", "is_tombstone_last"]).rename_columns(
            list(_NAMES)
        )
        while kept.num_rows > self._keys_max:
            self._halvings += 1
            kept = self._below_bound(kept)
        self._kept = kept

    # --- figures -----------------------------------------------------------------------------

    @property
    def sampled_one_in(self) -> int:
        """The scale of the sample; 1 if every key was counted."""
        self.settle()
        return 1 << self._halvings

    @property
    def keys(self) -> int:
        one_in = self.sampled_one_in
        return 0 if self._kept is None else self._kept.num_rows * one_in

    @property
    def newest_bytes(self) -> int:
        """The bytes of keys and values of the newest records."""
        return self._sum("size")

    @property
    def newest_tombstones(self) -> int:
        """The number of keys whose newest record is a tombstone."""
        return self._sum("is_tombstone")

    def _sum(self, name: str) -> int:
        one_in = self.sampled_one_in
        if self._kept is None:
            return 0
        import pyarrow.compute as pc

        found = pc.sum(self._kept.column(name)).as_py() or 0
        return min(int(found) * one_in, INT64_MAX)
