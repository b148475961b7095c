"""The options of the sink: those of Spark's Kafka sink, with the same meaning, and our own.

    path                     write to the store in this directory, exactly once
    kafka.bootstrap.servers  write through the broker at this address, at least once
    topic                    the topic of every row; without it the column `topic` names it
    kafka.security.protocol, kafka.sasl.*, kafka.ssl.*
                             how to connect to the broker, as for Spark's Kafka sink

    paths                    further data directories of the store, as a JSON list
    partitions               create a missing topic with this many; without it the topic must exist
    partitioner              how keys are hashed: murmur2 as in Java's clients, or crc32 as in
                             librdkafka's defaults
    compression              codec of batches, if the topic leaves the choice to producers
    applicationId            name under which batches are numbered; a stream has its own
    batchNumber              for a batch query, with applicationId: each number is written once
    timeout                  how long to wait for the process that owns the store

Read once, on the driver. Holding a `SinkOptions` means every value in it is usable.
"""

import difflib
import json
import os
import re
from collections.abc import Mapping
from typing import Final

from cordwood.errors import ConfigError, InvalidTopicNameError
from cordwood.format.compression import Codec
from cordwood.format.file_names import INTERNAL_TOPICS, check_topic_name
from cordwood.log.inbox.change_request import CHANGE_TIMEOUT_S
from cordwood.quantities import INT64_MAX, parse_duration_ms
from cordwood.security.clients.client_properties import SECURITY_KEYS, parse_client_properties
from cordwood.security.clients.client_security import ClientSecurity
from cordwood.spark.sink.partitioner import Partitioner
from cordwood.value_class import dataclass, field

_BOOTSTRAP: Final = "kafka.bootstrap.servers"
_KAFKA_PREFIX: Final = "kafka."
_KAFKA_PARTITIONER: Final = "kafka.partitioner"
_NAMES: Final = (
    "path",
    "paths",
    "topic",
    "partitions",
    "partitioner",
    "compression",
    "applicationId",
    "batchNumber",
    "timeout",
)
# Options that Spark adds, and those that its Kafka sink documents but ignores.
_PASSED_OVER: Final = frozenset({"checkpointlocation", "queryname", "includeheaders"})
_SPELLINGS: Final = {name.lower(): name for name in _NAMES}
_REFUSED: Final = {
    "kafka.key.serializer": "keys are written as bytes; cast the column",
    "kafka.value.serializer": "values are written as bytes; cast the column",
    "kafka.interceptor.classes": "there is no producer to intercept",
}
_ONLY_LIBRDKAFKA: Final = frozenset({"GSSAPI", "OAUTHBEARER"})  # it gets tickets and tokens itself
_PARTITIONS_MAX: Final = 10_000
_FILE_URL: Final = re.compile(r"file:(//(localhost)?)?(?=/)")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Where rows go, and how.

    producer   settings of the producer that sends them to a broker; empty for a store. They may
               hold secrets, and no repr shows them
    security   how that producer connects, with the secrets, which no repr shows
    """

    paths: tuple[str, ...] = ()
    topic: str | None = None
    partitions: int | None = None
    partitioner: Partitioner = Partitioner.MURMUR2
    codec: Codec | None = None
    application: str | None = None
    number: int | None = None
    checkpoint: str | None = None
    timeout_s: float = CHANGE_TIMEOUT_S
    producer: Mapping[str, str] = field(default_factory=dict, repr=False)
    security: ClientSecurity | None = None

    @property
    def path(self) -> str:
        """The first data directory."""
        return self.paths[0]

    @property
    def is_for_broker(self) -> bool:
        return not self.paths

    @classmethod
    def for_batch(cls, options: Mapping[str, str]) -> "SinkOptions":
        found = cls._parse(options)
        if (found.application is None) != (found.number is None):
            raise ConfigError(
                "applicationId" if found.number is None else "batchNumber",
                found.application or found.number,
                "a batch query needs both applicationId and batchNumber, or neither",
            )
        return found

    @classmethod
    def for_stream(cls, options: Mapping[str, str]) -> "SinkOptions":
        found = cls._parse(options)
        if found.number is not None:
            raise ConfigError("batchNumber", found.number, "a stream numbers its batches itself")
        return found

    @classmethod
    def _parse(cls, options: Mapping[str, str]) -> "SinkOptions":
        given, kafka = _sort(options)
        paths = _parse_paths(given)
        bootstrap = kafka.get(_BOOTSTRAP, "").strip()
        if bool(paths) == bool(bootstrap):
            raise ConfigError(
                "path",
                paths[0] if paths else "",
                f"set either the directory of a store or {_BOOTSTRAP}",
            )
        topic = given.get("topic")
        if topic is not None:
            _check_topic(topic)
        checkpoint = options.get("checkpointlocation")
        security = None
        if not paths:
            kafka, security = _split_security(kafka)
        found = cls(
            paths=paths,
            topic=topic,
            partitions=_integer(given, "partitions", 1, _PARTITIONS_MAX),
            partitioner=_parse_partitioner(given, kafka, is_for_broker=not paths),
            codec=_parse_codec(given, kafka),
            application=_parse_application(given),
            number=_integer(given, "batchNumber", 0, INT64_MAX),
            checkpoint=None if checkpoint is None else plain_path(checkpoint),
            timeout_s=_parse_timeout(given),
            producer={} if paths else kafka,
            security=security,
        )
        found._check_broker(given)
        return found

    def _check_broker(self, given: Mapping[str, str]) -> None:
        if not self.is_for_broker:
            return
        for name in ("partitions", "applicationId", "batchNumber", "timeout"):
            if name in given:
                raise ConfigError(name, given[name], f"is for stores, not for {_BOOTSTRAP}")


def _sort(options: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Our options by their documented names, and those of Kafka. Refuses all others."""
    given: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for typed, text in options.items():
        lowered = typed.lower()
        if lowered in _REFUSED:
            raise ConfigError(typed, text, _REFUSED[lowered])
        if lowered.startswith(_KAFKA_PREFIX):
            kafka[lowered] = text
        elif lowered in _SPELLINGS:
            given[_SPELLINGS[lowered]] = text
        elif lowered not in _PASSED_OVER:
            raise ConfigError(typed, text, _unknown(lowered))
    return given, kafka


def _split_security(
    kafka: Mapping[str, str],
) -> tuple[dict[str, str], ClientSecurity | None]:
    """The settings of the producer without those of security, and these.

    Java's clients and librdkafka name some of them differently; both are accepted. What only
    librdkafka has, such as ssl.crl.location, is passed on to it.
    """
    plain = {name.removeprefix(_KAFKA_PREFIX): text for name, text in kafka.items()}
    known = {name: text for name, text in plain.items() if name in SECURITY_KEYS}
    mechanism = known.get("sasl.mechanism") or known.get("sasl.mechanisms") or ""
    if not known or mechanism.upper() in _ONLY_LIBRDKAFKA:
        return dict(kafka), None
    try:
        security = parse_client_properties(known).security
    except ConfigError as error:
        raise ConfigError(_KAFKA_PREFIX + error.key, error.value, error.reason) from None
    rest = {name: text for name, text in kafka.items() if name[len(_KAFKA_PREFIX) :] not in known}
    return rest, security


def _unknown(typed: str) -> str:
    near = [_SPELLINGS[name] for name in difflib.get_close_matches(typed, _SPELLINGS, n=2)]
    if near:
        return f"unknown option; did you mean {' or '.join(near)}?"
    return f"unknown option; known are {', '.join(_NAMES)}, and kafka.*"


def plain_path(path: str) -> str:
    """`path` without the prefix `file:`, which Spark writes in several forms."""
    return _FILE_URL.sub("", path).rstrip("/") or "/"


def _parse_paths(given: Mapping[str, str]) -> tuple[str, ...]:
    found: list[object] = []
    if "path" in given:
        found.append(given["path"])
    if "paths" in given:
        try:
            listed = json.loads(given["paths"])
        except ValueError as error:
            raise ConfigError("paths", given["paths"], "must be a JSON list") from error
        found += listed if isinstance(listed, list) else [listed]
    paths: list[str] = []
    for item in found:
        path = plain_path(item) if isinstance(item, str) else ""
        if not path.strip() or _URL.match(path):
            raise ConfigError("path", item, "must be a directory that all executors can write to")
        # Executors may have another working directory than the driver.
        paths.append(os.path.abspath(path))
    return tuple(dict.fromkeys(paths))


def _check_topic(topic: str) -> None:
    try:
        check_topic_name(topic)
    except InvalidTopicNameError as error:
        raise ConfigError("topic", topic, error.reason) from error
    if topic in INTERNAL_TOPICS:
        raise ConfigError("topic", topic, "is internal to the store")


def _parse_codec(given: Mapping[str, str], kafka: Mapping[str, str]) -> Codec | None:
    option = "compression" if "compression" in given else "kafka.compression.type"
    text = given.get(option, kafka.get(option))
    if text is None:
        return None
    try:
        return Codec.named(text.strip().lower())
    except ConfigError as error:
        raise ConfigError(option, text, error.reason) from error


def _parse_partitioner(
    given: Mapping[str, str], kafka: Mapping[str, str], *, is_for_broker: bool
) -> Partitioner:
    """A producer setting is passed on if there is a producer and no option contradicts it."""
    text = given.get("partitioner")
    theirs = kafka.get(_KAFKA_PARTITIONER)
    if theirs is not None and not is_for_broker:
        raise ConfigError(
            _KAFKA_PARTITIONER, theirs, "applies only to brokers; use the option partitioner"
        )
    if theirs is not None and text is not None:
        raise ConfigError("partitioner", text, f"{_KAFKA_PARTITIONER} is set too; omit one of them")
    return Partitioner.MURMUR2 if text is None else Partitioner.parse(text)


def _parse_application(given: Mapping[str, str]) -> str | None:
    text = given.get("applicationId")
    if text is not None and not 0 < len(text.strip()) <= 500:
        raise ConfigError("applicationId", text, "must have 1 to 500 characters")
    return text


def _parse_timeout(given: Mapping[str, str]) -> float:
    text = given.get("timeout")
    if text is None:
        return CHANGE_TIMEOUT_S
    try:
        found_ms = parse_duration_ms(text)
    except ValueError as error:
        raise ConfigError("timeout", text, str(error)) from error
    if found_ms <= 0:
        raise ConfigError("timeout", text, "must be more than 0")
    return found_ms / 1000


def _integer(given: Mapping[str, str], name: str, minimum: int, maximum: int) -> int | None:
    text = given.get(name)
    if text is None:
        return None
    if not text.strip().isdecimal() or not minimum <= int(text) <= maximum:
        raise ConfigError(name, text, f"must be a whole number from {minimum} to {maximum}")
    return int(text)
