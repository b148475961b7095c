"""Isolation levels: which batches of a log a reader may see.

These are Kafka's two levels. With read_uncommitted a reader sees all appended records in order.
With read_committed it stops at the last stable offset, before the first undecided transaction,
and skips records of aborted transactions. Records outside of transactions are committed when they
are appended.
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
    """Whether the level is read_committed; `ConfigError` for an unknown level."""
    if isolation not in (READ_UNCOMMITTED, READ_COMMITTED):
        raise ConfigError("isolation", isolation, f"must be {READ_UNCOMMITTED} or {READ_COMMITTED}")
    return isolation == READ_COMMITTED


class AbortedBatches:
    """The batches of aborted transactions, identified by producer and offset."""

    def __init__(self, transactions: Iterable[AbortedTransaction]) -> None:
        self._spans: dict[int, list[tuple[int, int]]] = {}
        for transaction in transactions:
            span = (transaction.first_offset, transaction.last_offset)
            self._spans.setdefault(transaction.producer_id, []).append(span)

    def __bool__(self) -> bool:
        return bool(self._spans)

    def left_over(self, decoder: BatchDecoder, first: int, end: int) -> Iterator[tuple[int, int]]:
        """Batches [first, end) of the decoder without the aborted ones, as ranges of indexes."""
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
