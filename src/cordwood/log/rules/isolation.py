"""Reading only what was committed: which batches of a log a reader must not be shown.

Kafka's two levels. A reader of uncommitted records sees what was appended, in order. A reader of
committed ones stops at the last stable offset, before the first transaction that is not decided
yet, and is not shown what transactions wrote that were aborted. Records outside of transactions
are committed when they are appended.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Literal

from cordwood.errors import ConfigError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import BatchDecoder
from cordwood.format.batch_header import TRANSACTIONAL
from cordwood.format.index_entry import AbortedTransaction

Isolation = Literal["read_uncommitted", "read_committed"]

READ_UNCOMMITTED: Final = "read_uncommitted"
READ_COMMITTED: Final = "read_committed"


def is_committed_only(isolation: str) -> bool:
    """Whether this level leaves anything out. Raises `ConfigError` for what is no level."""
    if isolation not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise ConfigError("isolation", isolation, f"must be {READ_UNCOMMITTED} or {READ_COMMITTED}")
    return isolation == READ_COMMITTED


class AbortedBatches:
    """The batches of aborted transactions, told by their producer and offset."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for transaction in transactions:
            span = (transaction.first_offset, transaction.last_offset)
            self._spans.setdefault(transaction.producer_id, []).append(span)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def left_over(self, decoder: BatchDecoder, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Batches [first, end) of the decoder without the aborted ones, as runs of indexes."""
        start = first
        for index in range(first, end):
            if self._has(decoder, index):
                if start < index:
                    yield start, index
                start = index + 1
        if start < end:
            yield start, end

    def _has(self, decoder: BatchDecoder, index: int) -> bool:
        if not decoder.field(index, tables.B_ATTRIBUTES) & TRANSACTIONAL:
            return False
        spans = self._spans.get(decoder.field(index, tables.B_PRODUCER_ID), ())
        offset = decoder.field(index, tables.B_BASE_OFFSET)
        return any(first <= offset <= last for first, last in spans)
