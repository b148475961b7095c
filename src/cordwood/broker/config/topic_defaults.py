"""The broker keys for the defaults of topics, such as ``log.retention.ms``.

The names are Kafka's. Keys that only Cordwood has get the prefix ``log.``: the default of the
topic key ``durability`` is ``log.durability``.
"""

from collections.abc import Mapping
from typing import Final

from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey
from cordwood.log.rules.topic_config import CONFIG_KEYS, TopicConfig
from cordwood.value_class import dataclass, replace

# The topic keys whose default a broker can set, with Kafka's name of the broker key.
_BROKER_NAMES: Final = {
    "segment.bytes": "log.segment.bytes",
    "segment.ms": "log.roll.ms",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.index.bytes": "log.index.size.max.bytes",
    "index.interval.bytes": "log.index.interval.bytes",
    "preallocate": "log.preallocate",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "cleanup.policy": "log.cleanup.policy",
    "retention.ms": "log.retention.ms",
    "retention.bytes": "log.retention.bytes",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "max.message.bytes": "message.max.bytes",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "message.timestamp.type": "log.message.timestamp.type",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "local.retention.ms": "log.local.retention.ms",
    "local.retention.bytes": "log.local.retention.bytes",
    "min.insync.replicas": "min.insync.replicas",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 60 * _MINUTE_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefault:
    """A broker key, `key`, that is the default of the topic key `topic_key`."""

    key: ConfigKey
    topic_key: ConfigKey


def _topic_defaults() -> tuple[TopicDefault, ...]:
    defaults = []
    for topic_key in CONFIG_KEYS:
        name = _BROKER_NAMES.get(topic_key.name)
        if name is None and topic_key.since_cordwood:
            name = f"log.{topic_key.name}"
        if name is not None:
            key = replace(topic_key, name=name)
            defaults.append(TopicDefault(key=key, topic_key=topic_key))
    return tuple(defaults)


TOPIC_DEFAULTS: Final = _topic_defaults()
_BY_BROKER_NAME: Final = {default.key.name: default for default in TOPIC_DEFAULTS}
BROKER_NAMES: Final[Mapping[str, str]] = {
    default.topic_key.name: default.key.name for default in TOPIC_DEFAULTS
}

# Kafka's names for the same keys in coarser units: the key, and the unit in milliseconds.
COARSER_NAMES: Final[Mapping[str, tuple[str, int]]] = {
    "log.retention.minutes": ("log.retention.ms", _MINUTE_MS),
    "log.retention.hours": ("log.retention.ms", _HOUR_MS),
    "log.roll.hours": ("log.roll.ms", _HOUR_MS),
    "log.roll.jitter.hours": ("log.roll.jitter.ms", _HOUR_MS),
}


def parse_topic_defaults(mapping: Mapping[str, object]) -> TopicConfig:
    """The defaults of topics that broker keys such as ``log.retention.ms`` set."""
    texts: dict[str, object] = {}
    for name, raw in mapping.items():
        default = _BY_BROKER_NAME.get(name)
        if default is None:
            raise ConfigError(name, raw, "is not a default of topics")
        # Read under the broker's name, so that an error names what the operator wrote.
        texts[default.topic_key.name] = default.key.render(default.key.parse(raw))
    return TopicConfig.parse(texts)


def render_topic_defaults(config: TopicConfig) -> dict[str, str]:
    """Every key here and its value in `config`, as text."""
    return {
        default.key.name: default.key.render(getattr(config, default.topic_key.field_name))
        for default in TOPIC_DEFAULTS
    }
