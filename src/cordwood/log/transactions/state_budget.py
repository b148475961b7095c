"""How much memory transactional ids take, and the limit of it: any client may create them."""

import logging
import sys
from typing import Final

from cordwood.clock import Clock
from cordwood.log.transactions.transaction_metadata import TransactionMetadata
from cordwood.quantities import MIB

logger = logging.getLogger(__name__)

STATE_BYTES_MAX: Final = 512 * MIB  # about half a million ids with short names
_ENTRY_BYTES: Final = 1000  # an id, without its name and its partitions
_PARTITION_BYTES: Final = 150
_LINE_S: Final = 60.0  # between two lines about the limit


def size_of(metadata: TransactionMetadata | None) -> int:
    """About how many bytes an id takes. A name may have 32 KB, a transaction many partitions."""
    if metadata is None:
        return 0
    name = sys.getsizeof(metadata.transactional_id)
    return _ENTRY_BYTES + name + _PARTITION_BYTES * len(metadata.partitions)


def _growth(old: TransactionMetadata | None, new: TransactionMetadata | None) -> int:
    if old is None or new is None:
        return size_of(new) - size_of(old)
    return _PARTITION_BYTES * (len(new.partitions) - len(old.partitions))  # the same name


class StateBudget:
    """Counts the bytes of all ids. Owned by the table of transactions, under its lock."""

    def __init__(self, clock: Clock, bytes_max: int = STATE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._clock = clock
        self._next_line_s = 0.0

    def replace(self, old: TransactionMetadata | None, new: TransactionMetadata | None) -> None:
        """An id changed, came (`old` is None) or went (`new` is None)."""
        self.used += _growth(old, new)

    def allows(self, old: TransactionMetadata | None, new: TransactionMetadata) -> bool:
        """Whether there is room for a change. What takes no more memory is always allowed."""
        growth = _growth(old, new)
        if growth <= 0 or self.used + growth <= self.bytes_max:
            return True
        now_s = self._clock.monotonic()
        if now_s >= self._next_line_s:
            self._next_line_s = now_s + _LINE_S
            logger.warning(
                "transactional ids take %d bytes of memory, the limit is %d: more are refused",
                self.used,
                self.bytes_max,
            )
        return False
