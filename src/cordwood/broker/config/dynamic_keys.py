"""Which keys of the broker and of groups can be changed while the broker runs.

They are Kafka's dynamic keys, as far as Cordwood has them. The layers of a value, the first that
has it counts:

    own       of this broker
    shared    of all brokers, Kafka's "cluster-wide default"
    static    from the configuration that the broker was started with
"""

from collections.abc import Mapping
from typing import Final

from cordwood.broker.config.broker_config import BROKER_KEYS, BrokerConfig
from cordwood.broker.config.kafka_facts import KAFKA_FACTS
from cordwood.broker.config.store_config import STORE_KEYS
from cordwood.broker.config.topic_defaults import TOPIC_DEFAULTS, render_topic_defaults
from cordwood.errors import ConfigError
from cordwood.log.compaction.cleaner import CleanerConfig
from cordwood.log.rules.config_key import ConfigKey
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.value_class import dataclass, field, replace

# Where the broker writes is decided by its operator, not by its clients.
_STATIC_DEFAULTS: Final = frozenset({"log.archive.url"})
_DYNAMIC_BROKER_KEYS: Final = frozenset(
    {
        "follower.replication.throttled.rate",
        "leader.replication.throttled.rate",
        "max.connection.creation.rate",
        "max.connections",
        "max.connections.per.ip",
        "num.io.threads",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)
_CLEANER: Final = "log.cleaner."
_DYNAMIC_CLEANER_KEYS: Final = frozenset(
    {
        "log.cleaner.threads",
        "log.cleaner.dedupe.buffer.size",
        "log.cleaner.io.buffer.load.factor",
        "log.cleaner.io.max.bytes.per.second",
        "log.cleaner.backoff.ms",
    }
)
_WITHOUT_EFFECT: Final = frozenset(
    {
        "background.threads",
        "group.consumer.assignment.interval.ms",
        "log.cleaner.io.buffer.size",
        "num.network.threads",
        "num.replica.fetchers",
        "producer.id.expiration.ms",
        "transaction.partition.verification.enable",
    }
)

TOPIC_DEFAULT_KEYS: Final = {
    default.key.name: default
    for default in TOPIC_DEFAULTS
    if not default.key.is_internal and default.key.name not in _STATIC_DEFAULTS
}
CLEANER_KEYS: Final = {key.name: key for key in STORE_KEYS if key.name in _DYNAMIC_CLEANER_KEYS}
DYNAMIC_KEYS: Final[Mapping[str, ConfigKey]] = {
    **{key.name: key for key in BROKER_KEYS if key.name in _DYNAMIC_BROKER_KEYS},
    **{name: default.key for name, default in TOPIC_DEFAULT_KEYS.items()},
    **CLEANER_KEYS,
    **{key.name: key for key, _ in KAFKA_FACTS if key.name in _WITHOUT_EFFECT},
}

_OF_ALL_GROUPS: Final = "group."
GROUP_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name.removeprefix(_OF_ALL_GROUPS): replace(key, name=key.name.removeprefix(_OF_ALL_GROUPS))
    for key in BROKER_KEYS
    if key.name in {"group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"}
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningConfig:
    """The values that can change while the broker runs."""

    broker: BrokerConfig
    topic_defaults: TopicConfig
    cleaner: CleanerConfig

    def with_dynamic(self, texts: Mapping[str, str]) -> "RunningConfig":
        """These values, with `texts` in place of those that they name. Raises `ConfigError`."""
        broker = {name: text for name, text in texts.items() if name in _DYNAMIC_BROKER_KEYS}
        topic = {
            TOPIC_DEFAULT_KEYS[name].topic_key.name: text
            for name, text in texts.items()
            if name in TOPIC_DEFAULT_KEYS
        }
        cleaner = {
            name.removeprefix(_CLEANER).replace(".", "_"): CLEANER_KEYS[name].parse(text)
            for name, text in texts.items()
            if name in CLEANER_KEYS
        }
        return RunningConfig(
            broker=BrokerConfig.parse(broker, defaults=self.broker),
            topic_defaults=TopicConfig.parse(topic, defaults=self.topic_defaults),
            cleaner=replace(self.cleaner, **cleaner),  # type: ignore[arg-type]  # its own keys
        )

    def texts(self) -> dict[str, str]:
        """Every key that has a value here."""
        cleaner = {
            name: key.render(getattr(self.cleaner, name.removeprefix(_CLEANER).replace(".", "_")))
            for name, key in CLEANER_KEYS.items()
        }
        return {
            **self.broker.effective(),
            **render_topic_defaults(self.topic_defaults),
            **cleaner,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigLayers:
    """The dynamic settings of a broker, as canonical text; see the head of this module.

    In a cluster also those of `groups` and of `subscriptions` to client metrics, by their names.
    """

    own: Mapping[str, str] = field(default_factory=dict)
    shared: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    subscriptions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def merged(self) -> dict[str, str]:
        return {**self.shared, **self.own}


NO_LAYERS: Final = ConfigLayers()


def canonical(name: str, value: str, keys: Mapping[str, ConfigKey]) -> str:
    """The text of a value as Kafka prints it. Raises `ConfigError` for a key not in `keys`."""
    key = keys.get(name)
    if key is None:
        raise ConfigError(name, value, "cannot be changed while the broker runs")
    return key.render(key.parse(value))
