"""The options of the source: those of Spark's Kafka source, with the same meaning, and our own.

Options are read once, on the driver. Holding a `SourceOptions` means every value in it is
usable; an unusable value is refused with the option, the value and the rule. Unknown options are
refused too: a misspelt one would silently read something else.
"""

import difflib
import json
import logging
from collections.abc import Callable, Mapping
from typing import Final

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.log.reading.time_lookup import EARLIEST, LATEST
from cordwood.log.rules.isolation import READ_COMMITTED, READ_UNCOMMITTED, Isolation
from cordwood.quantities import MIB, parse_duration_ms, parse_size
from cordwood.spark.source.boundaries import Boundary, parse_offsets, parse_time, parse_times
from cordwood.spark.source.record_key import parse_key
from cordwood.spark.source.row_schema import DEFAULT_COLUMNS, HEADERS, parse_columns
from cordwood.spark.source.topic_choice import CHOICES, TopicChoice, parse_choice
from cordwood.spark.where.condition import ALWAYS, Condition
from cordwood.spark.where.condition_text import OPTION as WHERE
from cordwood.spark.where.condition_text import parse_condition
from cordwood.value_class import dataclass

logger = logging.getLogger(__name__)

# Spark's default for files: enough work to be worth a task.
TASK_BYTES: Final = 128 * MIB

_STARTING: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
)
_ENDING: Final = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
_TRIGGER: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
)
_OURS: Final = ("columns", "where", "key", "keyEncoding", "group", "maxBytesPerPartition")
_READ: Final = (
    "path",
    "paths",
    *CHOICES,
    *_STARTING,
    *_ENDING,
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    *_TRIGGER,
    *_OURS,
)

# How Spark's source talks to brokers. Accepted and ignored, because there are no brokers here.
_MEANINGLESS: Final = (
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "partition.metadata.cache.ttl.ms",
)
_KAFKA_PREFIX: Final = "kafka."
ISOLATION: Final = "kafka.isolation.level"
# Consumer settings that Spark's Kafka source refuses too.
_REFUSED: Final = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are read as bytes; cast the column",
    "kafka.value.deserializer": "values are read as bytes; cast the column",
    "kafka.enable.auto.commit": "use the option group to commit progress",
    "kafka.interceptor.classes": "there is no consumer to intercept",
}
_SPELLINGS: Final = {name.lower(): name for name in (*_READ, *_MEANINGLESS)}

_LATEST_START: Final = "a batch query cannot start at the end; use earliest, offsets or a time"
_EARLIEST_END: Final = "a query cannot end at the start; use latest, offsets or a time"


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerLimits:
    """How much of a stream one micro-batch reads. None means no limit."""

    offsets_max: int | None = None
    offsets_min: int | None = None
    delay_ms_max: int = 15 * 60 * 1000
    bytes_max: int | None = None

    def __post_init__(self) -> None:
        if (
            self.offsets_min is not None
            and self.offsets_max is not None
            and self.offsets_min > self.offsets_max
        ):
            raise ConfigError(
                "minOffsetsPerTrigger",
                self.offsets_min,
                f"must be at most maxOffsetsPerTrigger = {self.offsets_max}",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The validated options of a reader."""

    paths: tuple[str, ...]
    topics: TopicChoice
    starting: Boundary
    ending: Boundary
    starts_late: bool = False  # startingOffsetsByTimestampStrategy=latest
    fails_on_data_loss: bool = True
    partitions_min: int | None = None
    task_records_max: int | None = None
    task_bytes: int = TASK_BYTES
    limits: TriggerLimits = TriggerLimits()
    key: bytes | None = None
    group: str | None = None
    isolation: Isolation = READ_UNCOMMITTED
    where: Condition = ALWAYS

    @classmethod
    def columns_from(cls, options: Mapping[str, str]) -> tuple[str, ...]:
        """The columns of a row, in order."""
        given = _Given(options)
        text = given.text("columns")
        if text is not None:
            return parse_columns(text)
        return (*DEFAULT_COLUMNS, HEADERS) if given.flag("includeHeaders") else DEFAULT_COLUMNS

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> "SourceOptions":
        given = _Given(options)
        for name in _TRIGGER:
            if given.text(name) is not None:
                logger.warning("%s applies to streams and has no effect on a batch query", name)
        if given.text("group") is not None:
            raise ConfigError("group", given.text("group"), "only streams commit their progress")
        return cls._parse(
            given,
            starting=_parse_starting(given, "earliest", refused={LATEST: _LATEST_START}),
            ending=_parse_ending(given),
            limits=TriggerLimits(),
        )

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> "SourceOptions":
        given = _Given(options)
        for name in _ENDING:
            if given.text(name) is not None:
                raise ConfigError(name, given.text(name), "a stream has no end")
        limits = TriggerLimits(
            offsets_max=given.count("maxOffsetsPerTrigger"),
            offsets_min=given.count("minOffsetsPerTrigger"),
            delay_ms_max=given.duration_ms("maxTriggerDelay", default=TriggerLimits().delay_ms_max),
            bytes_max=given.size("maxBytesPerTrigger"),
        )
        return cls._parse(
            given,
            starting=_parse_starting(given, "latest", refused={}),
            ending=Boundary(option="endingOffsets", everywhere=LATEST),
            limits=limits,
        )

    @classmethod
    def _parse(
        cls, given: "_Given", *, starting: Boundary, ending: Boundary, limits: TriggerLimits
    ) -> "SourceOptions":
        strategy = given.choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
        choices = {name: text for name in CHOICES if (text := given.text(name)) is not None}
        group = given.text("group")
        if group is not None and not group.strip():
            raise ConfigError("group", group, "must be the name of a consumer group")
        return cls(
            paths=_parse_paths(given),
            topics=parse_choice(choices),
            starting=starting,
            ending=ending,
            starts_late=strategy == "latest",
            fails_on_data_loss=given.flag("failOnDataLoss", default=True),
            partitions_min=given.count("minPartitions"),
            task_records_max=given.count("maxRecordsPerPartition"),
            task_bytes=given.size("maxBytesPerPartition") or TASK_BYTES,
            limits=limits,
            key=parse_key(given.text("key"), given.text("keyEncoding")),
            group=group,
            isolation=_parse_isolation(given),
            where=_parse_where(given),
        )


class _Given:
    """The options by their documented names. Refuses unknown ones."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._texts: dict[str, str] = {}
        for typed, text in options.items():
            name = _SPELLINGS.get(typed.lower())
            if name is not None:
                self._texts[name] = text
            elif typed.lower().startswith(_KAFKA_PREFIX):
                _check_kafka(typed.lower(), text)
                self._texts[typed.lower()] = text
            else:
                raise ConfigError(typed, text, _unknown(typed))

    def text(self, name: str) -> str | None:
        return self._texts.get(name)

    def flag(self, name: str, *, default: bool = False) -> bool:
        found = self.choice(name, ("true", "false"))
        return default if found is None else found == "true"

    def choice(self, name: str, values: tuple[str, ...]) -> str | None:
        text = self.text(name)
        if text is None:
            return None
        if text.strip().lower() not in values:
            raise ConfigError(name, text, f"must be {' or '.join(values)}")
        return text.strip().lower()

    def count(self, name: str) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not text.strip().isdecimal() or int(text) <= 0:
            raise ConfigError(name, text, "must be a whole number of 1 or more")
        return int(text)

    def size(self, name: str) -> int | None:
        return self._measure(name, parse_size)

    def duration_ms(self, name: str, *, default: int) -> int:
        found = self._measure(name, parse_duration_ms)
        return default if found is None else found

    def _measure(self, name: str, parse: Callable[[str], int]) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        try:
            found = parse(text)
        except ValueError as error:
            raise ConfigError(name, text, str(error)) from error
        if found <= 0:
            raise ConfigError(name, text, "must be more than 0")
        return found


def _unknown(typed: str) -> str:
    near = difflib.get_close_matches(typed.lower(), _SPELLINGS, n=3)
    if near:
        names = " or ".join(_SPELLINGS[name] for name in near)
        return f"unknown option; did you mean {names}?"
    return f"unknown option; known are {', '.join(sorted(_READ))}, and kafka.*"


def _check_kafka(name: str, text: str) -> None:
    """Accept Kafka consumer settings; only the isolation level has an effect."""
    if name in _REFUSED:
        raise ConfigError(name, text, _REFUSED[name])


def _parse_isolation(given: _Given) -> Isolation:
    if given.choice(ISOLATION, (READ_UNCOMMITTED, READ_COMMITTED)) != READ_COMMITTED:
        return READ_UNCOMMITTED
    if given.text("key") is not None:
        raise ConfigError(
            ISOLATION,
            READ_COMMITTED,
            "a lookup by key ignores whether records are committed; omit this or the option key",
        )
    return READ_COMMITTED


def _parse_where(given: _Given) -> Condition:
    text = given.text(WHERE)
    return ALWAYS if text is None else parse_condition(text, now_ms=SystemClock().now_ms())


def _parse_paths(given: _Given) -> tuple[str, ...]:
    """`load("dir")` sets path, `load(["dir1", "dir2"])` sets paths, all of one store."""
    path, paths = given.text("path"), given.text("paths")
    found: list[object] = []
    if paths is not None:
        try:
            listed = json.loads(paths)
        except ValueError as error:
            raise ConfigError("paths", paths, "must be a JSON list of directories") from error
        found += listed if isinstance(listed, list) else [listed]
    if path is not None:
        found.insert(0, path)
    if not found or not all(isinstance(item, str) and item.strip() for item in found):
        raise ConfigError(
            "path",
            path or paths or "",
            "must be the directory of a store or of Kafka, or the URL of an archive",
        )
    return tuple(dict.fromkeys(str(item) for item in found))


def _parse_starting(given: _Given, default: str, *, refused: Mapping[int, str]) -> Boundary:
    if (text := given.text("startingTimestamp")) is not None:
        return parse_time("startingTimestamp", text)
    if (text := given.text("startingOffsetsByTimestamp")) is not None:
        return parse_times("startingOffsetsByTimestamp", text)
    text = given.text("startingOffsets")
    return parse_offsets("startingOffsets", default if text is None else text, refused=refused)


def _parse_ending(given: _Given) -> Boundary:
    if (text := given.text("endingTimestamp")) is not None:
        return parse_time("endingTimestamp", text)
    if (text := given.text("endingOffsetsByTimestamp")) is not None:
        return parse_times("endingOffsetsByTimestamp", text)
    text = given.text("endingOffsets")
    refused = {EARLIEST: _EARLIEST_END}
    return parse_offsets("endingOffsets", "latest" if text is None else text, refused=refused)
