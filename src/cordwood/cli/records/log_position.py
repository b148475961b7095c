"""Positions in a log as people write them: ``beginning``, ``end``, ``42``, ``-10m``, a time.

beginning, earliest    the first record
end, latest            after the last record
42                     offset 42
-10                    10 records before the end
-10m                   10 minutes ago (ms, s, m, h, d, w)
@1760000000000         a time in milliseconds since 1970; so is any number of 13 digits or more
2026-11-16T09:30       a time in ISO 8601, local if it has no time zone
2026-11-16, 09:30      the start of a day; a time today
"""

import re
from datetime import date, datetime, time
from enum import Enum
from typing import Final

from cordwood.errors import ConfigError
from cordwood.quantities import INT64_MAX, parse_duration_ms
from cordwood.value_class import dataclass

_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_AGO: Final = re.compile(r"-([0-9]{1,12})(ms|s|m|min|h|d|w)", re.IGNORECASE)
_TIME_MS_MIN: Final = 10**12  # as an offset, a trillion records in one partition

_RULE: Final = (
    "must be beginning, end, an offset (42), a number of records before the end (-10), "
    "an age (-10m), or a time (2026-11-16T09:30, @1760000000000)"
)


class Edge(Enum):
    """A position without a number."""

    BEGINNING = "beginning"
    END = "end"


@dataclass(frozen=True, slots=True, kw_only=True)
class AtOffset:
    """An offset, the same in each partition."""

    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BeforeEnd:
    """A number of records before the end."""

    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AtTime:
    """The first record not older than a time."""

    timestamp_ms: int


LogPosition = Edge | AtOffset | BeforeEnd | AtTime

_WORDS: Final = {
    "beginning": Edge.BEGINNING,
    "earliest": Edge.BEGINNING,
    "start": Edge.BEGINNING,
    "end": Edge.END,
    "latest": Edge.END,
}


def parse_position(text: str, option: str, *, now_ms: int) -> LogPosition:
    """The position that `text` names; a `ConfigError` names the `option`."""
    given = text.strip()
    if given.lower() in _WORDS:
        return _WORDS[given.lower()]
    if _NUMBER.fullmatch(given):
        number = int(given)
        if given.startswith("-"):
            return BeforeEnd(count=-number)
        if number > INT64_MAX:
            raise ConfigError(option, text, f"must be at most {INT64_MAX}")
        return AtTime(timestamp_ms=number) if number >= _TIME_MS_MIN else AtOffset(offset=number)
    return AtTime(timestamp_ms=_parse_moment(given, option, now_ms))


def parse_time_ms(text: str, option: str, *, now_ms: int) -> int:
    """The time that `text` names; a whole number is milliseconds since 1970."""
    given = text.strip()
    if _NUMBER.fullmatch(given) and 0 <= int(given) <= INT64_MAX:
        return int(given)
    return _parse_moment(given, option, now_ms)


def _parse_moment(given: str, option: str, now_ms: int) -> int:
    ago = _AGO.fullmatch(given)
    if ago is not None:
        return max(now_ms - parse_duration_ms(ago[1] + ago[2]), 0)
    if given.lower() == "now":
        return now_ms
    if given.startswith("@"):
        if _NUMBER.fullmatch(given[1:]) and 0 <= int(given[1:]) <= INT64_MAX:
            return int(given[1:])
        raise ConfigError(option, given, "must be @ and milliseconds since 1970")
    moment = _parse_iso(given)
    if moment is None:
        raise ConfigError(option, given, _RULE)
    try:
        return max(round(moment.timestamp() * 1000), 0)
    except (OverflowError, ValueError, OSError) as error:
        raise ConfigError(option, given, f"is not a valid time: {error}") from error


def _parse_iso(given: str) -> datetime | None:
    try:
        return datetime.fromisoformat(given)
    except ValueError:
        pass
    try:
        return datetime.combine(date.today(), time.fromisoformat(given))
    except ValueError:
        return None
