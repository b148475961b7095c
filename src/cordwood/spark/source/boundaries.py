"""Where a query starts and ends, as the options state it, before any offset is looked up.

    earliest, latest           the log's own ends
    {"orders": {"0": 23}}      offsets; -2 and -1 stand for earliest and latest
    1760000000000              a time: the first record at or after it
    -10m                       the same, relative to now: 10 minutes ago
    2026-01-31T12:00:00Z       the same, in ISO 8601

A time may apply to all partitions or to each separately.
"""

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Final

from cordwood.errors import ConfigError
from cordwood.log.reading.time_lookup import EARLIEST, LATEST
from cordwood.quantities import INT32_MAX, INT64_MAX, TimestampMs, parse_duration_ms
from cordwood.spark.source.stream_offsets import SPECIAL_PREFIX, StreamOffset
from cordwood.spark.source.topic_choice import TopicPartition
from cordwood.value_class import dataclass

_RELATIVE: Final = re.compile(r"-\s*\d+\s*[a-zA-Z]+")
_MOMENT_RULE: Final = (
    "must be milliseconds since 1970, a time with its zone like 2026-01-31T12:00:00Z, "
    "or an age like -10m"
)
_MICROSECONDS_MAX_MS: Final = INT64_MAX // 1000  # the range of a timestamp column


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """A time, or an age relative to now."""

    timestamp_ms: int = 0
    age_ms: int | None = None

    def at(self, now_ms: TimestampMs) -> TimestampMs:
        """The absolute time, if the present time is `now_ms`."""
        if self.age_ms is None:
            return TimestampMs(self.timestamp_ms)
        return TimestampMs(max(now_ms - self.age_ms, 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class Boundary:
    """One end of the range to read. Exactly one of the first three fields after `option` is set.

    `option` is the name of the option, for messages.
    """

    option: str
    everywhere: int | Moment | None = None  # EARLIEST, LATEST, or a moment for all partitions
    offsets: Mapping[TopicPartition, int] | None = None
    moments: Mapping[TopicPartition, Moment] | None = None
    topic_ids: Mapping[str, str] | None = None  # with `offsets` taken from a progress report

    def __post_init__(self) -> None:
        given = (self.everywhere, self.offsets, self.moments)
        assert sum(value is not None for value in given) == 1, self

    @property
    def named(self) -> frozenset[TopicPartition] | None:
        """The partitions it names; None if it applies to all."""
        if self.everywhere is not None:
            return None
        return frozenset(self.offsets if self.offsets is not None else self.moments or ())

    def of(self, partition: TopicPartition) -> int | Moment:
        """An offset, EARLIEST, LATEST or a moment."""
        if self.everywhere is not None:
            return self.everywhere
        if self.offsets is not None:
            return self.offsets[partition]
        assert self.moments is not None, self
        return self.moments[partition]


def parse_offsets(option: str, text: str, *, refused: Mapping[int, str]) -> Boundary:
    """Parse `earliest`, `latest` or JSON; `refused` maps EARLIEST or LATEST to the reason."""
    word = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    if word is not None:
        if word in refused:
            raise ConfigError(option, text, refused[word])
        return Boundary(option=option, everywhere=word)
    rule = 'must be earliest, latest, or JSON like {"orders": {"0": 23, "1": -2}}'
    parsed = _parse_map(option, text, rule)
    ids = parsed.pop(SPECIAL_PREFIX + "ids", None)
    parsed = {topic: v for topic, v in parsed.items() if not topic.startswith(SPECIAL_PREFIX)}
    try:
        found = StreamOffset.parse_positions(parsed, minimum=EARLIEST)
    except ValueError as error:
        raise ConfigError(option, text, f"{rule}: {error}") from error
    for offset in sorted(set(found.values()) & set(refused)):
        raise ConfigError(option, text, refused[offset])
    if ids is not None and not isinstance(ids, dict):
        raise ConfigError(option, text, f"{rule}: topic ids must be an object")
    return Boundary(option=option, offsets=found, topic_ids=ids)


def parse_time(option: str, text: str) -> Boundary:
    """Parse one time for all partitions."""
    return Boundary(option=option, everywhere=_parse_moment(option, text, text))


def parse_times(option: str, text: str) -> Boundary:
    """Parse JSON with a time for each partition."""
    rule = 'must be JSON like {"orders": {"0": 1760000000000, "1": "-10m"}}'
    moments: dict[TopicPartition, Moment] = {}
    for topic, times in _parse_map(option, text, rule).items():
        if not isinstance(times, dict):
            raise ConfigError(option, text, rule)
        for number, value in times.items():
            if not number.isdecimal() or int(number) > INT32_MAX:
                raise ConfigError(option, text, f"{rule}: {number!r} is not a partition number")
            if isinstance(value, bool) or not isinstance(value, (int, str)):
                raise ConfigError(option, text, rule)
            moments[topic, int(number)] = _parse_moment(option, str(value), text)
    if not moments:
        raise ConfigError(option, text, rule)
    return Boundary(option=option, moments=moments)


def _parse_map(option: str, text: str, rule: str) -> dict[str, object]:
    try:
        found = json.loads(text)
    except ValueError as error:
        raise ConfigError(option, text, f"{rule}: {error}") from error
    if not isinstance(found, dict):
        raise ConfigError(option, text, rule)
    return found


def _parse_moment(option: str, text: str, shown: str) -> Moment:
    text = text.strip()
    if text.isdecimal():
        if int(text) > _MICROSECONDS_MAX_MS:
            raise ConfigError(option, shown, f"{_MOMENT_RULE}; {text} is too large")
        return Moment(timestamp_ms=int(text))
    try:
        if _RELATIVE.fullmatch(text):
            return Moment(age_ms=parse_duration_ms(text.lstrip("- ")))
        when = datetime.fromisoformat(text)
        if when.tzinfo is None:
            raise ConfigError(option, shown, f"{_MOMENT_RULE}; the time zone is missing")
        timestamp_ms = int(when.timestamp() * 1000)
    except ConfigError:
        raise
    except (ValueError, OverflowError) as error:
        raise ConfigError(option, shown, _MOMENT_RULE) from error
    if timestamp_ms < 0:
        raise ConfigError(option, shown, f"{_MOMENT_RULE}; it is before 1970")
    return Moment(timestamp_ms=timestamp_ms)
