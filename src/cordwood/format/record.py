"""A record: key, value, headers, timestamp and offset."""

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

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
