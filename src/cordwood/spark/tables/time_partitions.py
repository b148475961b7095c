"""Tables divided by the time of the record: a file holds the rows of one hour, day or month."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TIME_COLUMN: Final = "timestamp"


class PartitionBy(StrEnum):
    """The unit of time, in UTC."""

    NONE = "none"
    HOUR = "hour"
    DAY = "day"
    MONTH = "month"

    @property
    def column(self) -> str | None:
        """The name of the partition's column, where a format has one."""
        return None if self is PartitionBy.NONE else self.value


_FORMATS: Final = {
    PartitionBy.HOUR: "%Y-%m-%d-%H",
    PartitionBy.DAY: "%Y-%m-%d",
    PartitionBy.MONTH: "%Y-%m",
}


def split(batch: pa.RecordBatch, by: PartitionBy) -> Iterator[tuple[str | None, pa.RecordBatch]]:
    """The rows of each unit of time, with its name: 2026-01-31, 2026-01-31-23, 2026-01."""
    if by is PartitionBy.NONE or not batch.num_rows:
        yield None, batch
        return
    times: Any = batch.column(TIME_COLUMN)
    unit_name: Any = by.value
    units: Any = pc.floor_temporal(times, unit=unit_name)
    words = units.cast(pa.int64()).to_numpy(zero_copy_only=False)
    for unit in np.unique(words):
        first = int(np.argmax(words == unit))
        name = str(pc.strftime(units.slice(first, 1), format=_FORMATS[by])[0])
        if (words == unit).all():
            yield name, batch
        else:
            yield name, batch.filter(pa.array(words == unit))
