"""A batch that is about to be written: everything a log must know before it gives it offsets."""

from typing import NamedTuple

from cordwood.quantities import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    ProducerId,
    TimestampMs,
)


class UnplacedBatch(NamedTuple):
    """An encoded batch without its base offset and leader epoch.

    The bytes are not in it: batches that are written together lie one behind the other in one
    buffer, in the order of the sequence that describes them. One is made for every append, so it
    is a tuple.

    size            bytes of the whole batch, header included
    record_count    also the number of offsets it takes
    max_timestamp   of its records
    producer_id     NO_PRODUCER_ID unless the producer is idempotent; then the epoch, the sequence
                    number of the first record, and whether a transaction is open
    """

    size: int
    record_count: int
    max_timestamp: TimestampMs
    producer_id: ProducerId = NO_PRODUCER_ID
    producer_epoch: int = NO_PRODUCER_EPOCH
    base_sequence: int = NO_SEQUENCE
    is_transactional: bool = False
