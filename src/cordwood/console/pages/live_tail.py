"""Following a topic: the newest records a few times a second, and how many were left out.

A viewer reads less than a busy topic writes. What is shown is the end of what arrived since the
last look; the rest is skipped, unread, and counted. So the cost does not depend on the rate of the
topic.
"""

from typing import Final

from cordwood.console.decoding.masking import TopicMasking
from cordwood.console.facts.topic_records import Extent, TopicRecords
from cordwood.console.views.message_rows import Decoders, MessageRow, message_row, oldest_first
from cordwood.value_class import dataclass

ROWS_PER_LOOK: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class TailStep:
    rows: tuple[MessageRow, ...]
    arrived: int
    dropped: int
    positions: dict[int, int]


class LiveTail:
    """The position of one viewer. For one thread at a time."""

    def __init__(
        self,
        records: TopicRecords,
        *,
        partition: int | None,
        masking: TopicMasking,
        decoders: Decoders,
        positions: dict[int, int] | None = None,
    ) -> None:
        self._records = records
        self._partition = partition
        self._masking = masking
        self._decoders = decoders
        ends = {number: extent.end for number, extent in self._extents().items()}
        self._positions = {n: min((positions or {}).get(n, end), end) for n, end in ends.items()}

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition."""
        return dict(self._positions)

    def _extents(self) -> dict[int, Extent]:
        extents = self._records.extents()
        if self._partition is None:
            return extents
        return {n: extent for n, extent in extents.items() if n == self._partition}

    def step(self) -> TailStep:
        """What arrived since the last step."""
        arrived = 0
        rows: list[MessageRow] = []
        for number, extent in self._extents().items():
            position = max(self._positions.get(number, extent.end), extent.start)
            if extent.end <= position:
                self._positions[number] = extent.end
                continue
            arrived += extent.end - position
            first = max(position, extent.end - ROWS_PER_LOOK)
            for record in self._records.read(number, first, extent.end, ROWS_PER_LOOK):
                rows.append(
                    message_row(self._records.topic, number, record, self._masking, self._decoders)
                )
            self._positions[number] = extent.end
        shown = oldest_first(rows, len(rows))[-ROWS_PER_LOOK:]
        return TailStep(
            rows=tuple(shown),
            arrived=arrived,
            dropped=max(arrived - len(shown), 0),
            positions=self.positions,
        )
