"""Signatures; `batch_placing.py` holds the code and what each kernel promises."""

from typing_extensions import Buffer

from cordwood.format.unplaced_batch import UnplacedBatch
from cordwood.quantities import Offset, TimestampMs

COMPILED: bool

def place_batches(
    data: Buffer, batches: list[UnplacedBatch], base_offset: int, leader_epoch: int
) -> tuple[list[Offset], int, Offset, TimestampMs, bool]: ...
def index_stretches(
    batches: list[UnplacedBatch], base_offset: int, first_bytes_max: int, bytes_max: int
) -> list[tuple[int, Offset, TimestampMs, int, Offset, Offset, TimestampMs]]: ...
