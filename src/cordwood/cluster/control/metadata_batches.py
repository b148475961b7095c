"""Batches of the metadata log: cut from answers, checked, and turned into records in portions.

A batch may have 8 MiB, which is some hundred thousand records. Decoding one takes about 10 us, so
whoever runs in an event loop takes the records in portions.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, NamedTuple

from cordwood.cluster.image.metadata_record import MetadataRecord, decode_record
from cordwood.errors import FormatError
from cordwood.format import kernel_tables as tables
from cordwood.format.batch import DAMAGE_STOPS, BatchDecoder, describe_stop
from cordwood.format.record import Record
from cordwood.quantities import MIB, Offset

BATCH_BYTES_MAX: Final = 64 * MIB  # Kafka's controllers write at most 8 MiB

_CUT_OFF: Final = frozenset({tables.STOP_SHORT_HEADER, tables.STOP_SHORT_BATCH})
_LENGTH_END: Final = 12  # base offset and batch length


class MetadataBatch(NamedTuple):
    """One batch as it was received, with a checksum that is right."""

    base_offset: Offset
    next_offset: Offset
    epoch: int
    is_control: bool
    data: bytes


def split_batches(data: memoryview) -> tuple[list[MetadataBatch], int]:
    """The whole batches at the start of `data`, and the number of bytes they have.

    Raises `FormatError` if one is damaged. What follows the last whole batch was cut off.
    """
    decoder = BatchDecoder()
    batches: list[MetadataBatch] = []
    at = 0
    while at < len(data):
        count = decoder.scan(data, at, len(data))
        for index in range(count):
            decoder.check_checksum(index)
            found = decoder.batch(index)
            batches.append(
                MetadataBatch(
                    found.base_offset,
                    found.next_offset,
                    found.leader_epoch,
                    found.is_control,
                    bytes(data[found.position : found.position + found.size]),
                )
            )
        at = decoder.position
        if decoder.stop in _CUT_OFF:
            _check_size(data, at)
            break
        if decoder.stop in DAMAGE_STOPS:
            raise FormatError(
                f"a batch of the metadata log is damaged: {describe_stop(decoder.stop)}",
                position=at,
            )
    return batches, at


def _check_size(data: memoryview, at: int) -> None:
    if len(data) - at >= _LENGTH_END:
        size = int.from_bytes(data[at + 8 : at + _LENGTH_END], "big")
        if size > BATCH_BYTES_MAX:
            raise FormatError(
                f"a batch of the metadata log claims {size} bytes; the limit is {BATCH_BYTES_MAX}",
                position=at,
            )


def _records_of(batch: MetadataBatch) -> list[Record]:
    decoder = BatchDecoder(batches_max=1)
    view = memoryview(batch.data)
    decoder.scan(view, 0, len(view))
    return decoder.parse(0).records()


class BatchQueue:
    """Batches in the order of the log, and how far their records were taken. For one thread."""

    def __init__(self) -> None:
        self._batches: deque[MetadataBatch] = deque()
        self._taken: Iterator[Record] | None = None  # the rest of the first batch

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[MetadataBatch]:
        return iter(self._batches)

    def append(self, batch: MetadataBatch) -> None:
        self._batches.append(batch)

    def clear(self) -> None:
        self._batches.clear()
        self._taken = None

    def drop_from(self, offset: int) -> None:
        """Forget the batches that begin at `offset` or later."""
        while self._batches and self._batches[-1].base_offset >= offset:
            self._batches.pop()
        if not self._batches:
            self._taken = None

    def first_below(self, end: int) -> MetadataBatch | None:
        """The first batch, if it ends at `end` or before."""
        if self._batches and self._batches[0].next_offset <= end:
            return self._batches[0]
        return None

    def take(self, count: int, *, start: int) -> Iterator[tuple[int, MetadataRecord]]:
        """At most `count` records of the first batch, from offset `start` on, with offsets.

        The batch is removed with its last record: `is_between` tells.
        """
        batch = self._batches[0]
        if batch.is_control:  # elections, voters, beginning and end of a snapshot
            self._batches.popleft()
            return
        if self._taken is None:
            self._taken = iter(_records_of(batch))
        for record in self._taken:
            if record.offset >= start:
                yield record.offset, decode_record(record.value)
                count -= 1
                if not count:
                    return
        self._taken = None
        self._batches.popleft()

    @property
    def is_between(self) -> bool:
        """Whether the first batch was not begun."""
        return self._taken is None
