"""Fetches that ask for records that are lost, with the files that held them.

A consumer gets the records behind the hole, as from Kafka. No error would serve it better: after
CORRUPT_MESSAGE it asks for the same offset again, for ever, and OFFSET_OUT_OF_RANGE makes it read
everything again, or nothing. But a hole is not passed over in silence: each one is logged, and
such fetches are counted. `store.damages()` lists the holes without a fetch.

Bytes that are there and damaged are another thing: a fetch of these is refused.
"""

import logging
from typing import Final

from cordwood.format.small_files.segment_manifest import Hole, missing_between
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.reading.log_source import LogView
from cordwood.quantities import Offset

logger = logging.getLogger(__name__)

_LOGGED_AGAIN_S: Final = 3600.0
_REMEMBERED_MAX: Final = 1000


class LostRecords:
    """Counts and logs fetches past lost records. Belongs to the data loop; anyone may read."""

    def __init__(self) -> None:
        self.fetch_count = 0
        self._logged_s: dict[tuple[str, Hole], float] = {}

    def note(self, log: PartitionLog, hole: Hole, *, now_s: float) -> None:
        """A client asked for the records of `hole` and got those behind it."""
        self.fetch_count += 1
        key = (log.name, hole)
        logged_s = self._logged_s.pop(key, None)
        if logged_s is None or now_s - logged_s >= _LOGGED_AGAIN_S:
            logged_s = now_s
            logger.error(
                "%s: offsets [%d, %d) are lost, and consumers get what follows: "
                "log files are missing or were cut; `cordwood verify` names them",
                log.name,
                hole.first,
                hole.next,
            )
        self._logged_s[key] = logged_s
        if len(self._logged_s) > _REMEMBERED_MAX:
            del self._logged_s[next(iter(self._logged_s))]


def lost_before(log: PartitionLog, view: LogView, offset: int, found: Offset) -> Hole | None:
    """What is lost between the offset that a fetch asked for and the batch that it gets."""
    wanted, first = Offset(offset), view.segments.first_offset
    if wanted < first <= found:
        return Hole(wanted, first)
    return missing_between(log.source.holes, wanted, found, log.source.gaps_below)
