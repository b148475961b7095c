"""Types for numbers that must not be mixed up, and parsing of sizes and durations.

An `Offset` counts records in a log, a `FilePosition` counts bytes in a file. Both are integers,
but one must never be used as the other, so each has its own type.
"""

import operator
import re
from typing import TYPE_CHECKING, Final, NewType

if TYPE_CHECKING:
    from datetime import datetime

Offset = NewType("Offset", int)
FilePosition = NewType("FilePosition", int)
TimestampMs = NewType("TimestampMs", int)
ProducerId = NewType("ProducerId", int)
LeaderEpoch = NewType("LeaderEpoch", int)

NO_OFFSET: Final = Offset(-1)
NO_TIMESTAMP: Final = TimestampMs(-1)
NO_PRODUCER_ID: Final = ProducerId(-1)
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_LEADER_EPOCH: Final = LeaderEpoch(-1)

INT16_MAX: Final = 2**15 - 1
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1

KIB: Final = 1024
MIB: Final = 1024 * KIB
GIB: Final = 1024 * MIB

_SIZE_UNITS: Final = {
    "": 1,
    "b": 1,
    "k": KIB,
    "kib": KIB,
    "kb": 1000,
    "m": MIB,
    "mib": MIB,
    "mb": 1000**2,
    "g": GIB,
    "gib": GIB,
    "gb": 1000**3,
    "t": 1024 * GIB,
    "tib": 1024 * GIB,
    "tb": 1000**4,
}

_SECOND_MS: Final = 1000
_MINUTE_MS: Final = 60 * _SECOND_MS
_HOUR_MS: Final = 60 * _MINUTE_MS
_DAY_MS: Final = 24 * _HOUR_MS

_DURATION_UNITS_MS: Final = {
    "": 1,
    "ms": 1,
    "s": _SECOND_MS,
    "m": _MINUTE_MS,
    "min": _MINUTE_MS,
    "h": _HOUR_MS,
    "d": _DAY_MS,
    "w": 7 * _DAY_MS,
}

_NUMBER_AND_UNIT: Final = re.compile(r"\s*(-?\d+)\s*([a-zA-Z]*)\s*")


def parse_size(text: str) -> int:
    """Bytes from ``1048576``, ``64MiB``, ``64m`` or ``1GB``. Raises ValueError with the rule."""
    return _parse(text, _SIZE_UNITS, "a whole number, or with a unit: KiB, MiB, GiB, KB, MB, GB")


def parse_duration_ms(text: str) -> int:
    """Milliseconds from ``604800000``, ``7d`` or ``90s``. Raises ValueError with the rule."""
    return _parse(text, _DURATION_UNITS_MS, "a whole number, or with a unit: ms, s, m, h, d, w")


def _parse(text: str, units: dict[str, int], rule: str) -> int:
    found = _NUMBER_AND_UNIT.fullmatch(text)
    if found is None or found[2].lower() not in units:
        raise ValueError(f"must be {rule}")
    return int(found[1]) * units[found[2].lower()]


def timestamp_of(moment: "int | datetime") -> TimestampMs:
    """Milliseconds since 1970 of a time: of a number as it is, of a `datetime` by its zone.

    Raises `ValueError` for a `datetime` without a time zone: it could mean any hour of a day.
    """
    if isinstance(moment, int):
        return TimestampMs(moment)
    if not hasattr(moment, "utcoffset"):
        if hasattr(moment, "__index__"):
            return TimestampMs(operator.index(moment))
        raise TypeError(f"a time is an int in ms or a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise ValueError(f"{moment!r} has no time zone; use datetime.now(UTC) or .astimezone()")
    from datetime import UTC, datetime, timedelta

    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return TimestampMs(since // timedelta(milliseconds=1))
