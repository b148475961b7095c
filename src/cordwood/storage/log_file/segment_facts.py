"""What a segment knows of its batches without reading them."""

from array import array
from typing import Final, Self

from cordwood.format import kernel_tables as tables
from cordwood.quantities import NO_TIMESTAMP, Offset, TimestampMs

NOT_SEEN: Final = TimestampMs(-2)  # as a first timestamp: there is no batch yet


class SegmentFacts:
    """Facts of the batches of one segment. Owned by the segment; its writer changes them.

    unindexed_bytes       since the last index entry
    max_timestamp         of all batches
    max_timestamp_offset  the last offset of the batch that has it
    indexed_timestamp     of the last entry of the time index
    record_count          records that were appended or walked
    first_timestamp       the largest timestamp of the first batch; NOT_SEEN before it
    """

    __slots__ = (
        "first_timestamp",
        "indexed_timestamp",
        "max_timestamp",
        "max_timestamp_offset",
        "record_count",
        "unindexed_bytes",
    )

    def __init__(self) -> None:
        self.unindexed_bytes = 0
        self.max_timestamp = NO_TIMESTAMP
        self.max_timestamp_offset = Offset(0)
        self.indexed_timestamp = NO_TIMESTAMP
        self.record_count = 0
        self.first_timestamp = NOT_SEEN

    @property
    def first_batch_timestamp(self) -> TimestampMs:
        """Largest timestamp of the first batch; NO_TIMESTAMP if there is no batch or timestamp."""
        return NO_TIMESTAMP if self.first_timestamp == NOT_SEEN else self.first_timestamp

    def words(self) -> "array[int]":
        """The same as the state of `batch_scan.index_batches`."""
        words = array("q", bytes(8 * tables.STATE_WORDS))
        words[tables.S_UNINDEXED] = self.unindexed_bytes
        words[tables.S_MAX_TIMESTAMP] = self.max_timestamp
        words[tables.S_MAX_TIMESTAMP_OFFSET] = self.max_timestamp_offset
        words[tables.S_INDEXED_TIMESTAMP] = self.indexed_timestamp
        words[tables.S_RECORD_COUNT] = self.record_count
        words[tables.S_FIRST_TIMESTAMP] = self.first_timestamp
        return words

    @classmethod
    def of_words(cls, words: "array[int]") -> Self:
        facts = cls()
        facts.unindexed_bytes = words[tables.S_UNINDEXED]
        facts.max_timestamp = TimestampMs(words[tables.S_MAX_TIMESTAMP])
        facts.max_timestamp_offset = Offset(words[tables.S_MAX_TIMESTAMP_OFFSET])
        facts.indexed_timestamp = TimestampMs(words[tables.S_INDEXED_TIMESTAMP])
        facts.record_count = words[tables.S_RECORD_COUNT]
        facts.first_timestamp = TimestampMs(words[tables.S_FIRST_TIMESTAMP])
        return facts
