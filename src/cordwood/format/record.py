"""A record as people see it: key, value, headers, time, and the offset it was given."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Header: TypeAlias = tuple[str, bytes | None]


class Record(NamedTuple):
    """One entry of a log.

    To write one, give `value` and whatever else matters; `timestamp_ms` left at None is the
    time of the append. When read back, `offset` and `timestamp_ms` are always set;
    -1 stands for a record that has no offset yet.
    A record whose value is None is a tombstone: on a compacted topic it deletes its key.

    A named tuple, because a reader makes a million of these per second.
    """

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    offset: int = -1
