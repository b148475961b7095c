"""A record: key, value, headers, timestamp and offset."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple, TypeAlias

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

Header: TypeAlias = tuple[str, bytes | None]


class Record(NamedTuple):
    """One entry of a log.

    To append one, set `value` and any other field; a `timestamp_ms` of None means the time of the
    append. A record that was read always has an `offset` and a `timestamp_ms`; a record without
    an offset yet has -1. A record whose value is None is a tombstone: in a compacted topic it
    deletes its key.

    It is a named tuple, because a reader creates a million of them per second.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    offset: int = -1

    @property
    def time(self) -> datetime | None:
        """The timestamp as a `datetime` in UTC; None if the record has none."""
        return utc_time(self.timestamp_ms)


def utc_time(timestamp_ms: int | None) -> datetime | None:
    """A timestamp as a `datetime`; None for none, and for one outside the years 1 to 9999."""
    if timestamp_ms is None or timestamp_ms < 0:
        return None
    try:
        return _EPOCH + timedelta(milliseconds=timestamp_ms)
    except OverflowError:
        return None
