"""Configuration entries: each key with its value and the source of the value.

The source is the first of these that sets the key: the topic or group, the settings of this broker
that were made while it ran, those of all brokers, the broker's configuration, the default. All of
them together are the synonyms of the key.
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from cordwood.broker.config.broker_config import BROKER_KEYS, BrokerConfig
from cordwood.broker.config.dynamic_keys import (
    CLEANER_KEYS,
    DYNAMIC_KEYS,
    GROUP_KEYS,
    NO_LAYERS,
    ConfigLayers,
    RunningConfig,
)
from cordwood.broker.config.kafka_facts import KAFKA_FACTS, fact_key
from cordwood.broker.config.store_config import STORE_KEYS
from cordwood.broker.config.topic_defaults import BROKER_NAMES, TOPIC_DEFAULTS
from cordwood.log.rules.config_key import ConfigKey, ConfigKind
from cordwood.log.rules.topic_config import CONFIG_KEYS, TopicConfig
from cordwood.quantities import INT32_MAX
from cordwood.value_class import dataclass


class ConfigSource(IntEnum):
    """The source of a value, with the protocol's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    BROKER = 4
    DEFAULT = 5
    CLIENT_METRICS = 7
    GROUP = 8


class ConfigType(IntEnum):
    """The type of a value, with the protocol's numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    LONG = 5
    DOUBLE = 6
    LIST = 7


_TYPES: Final = {
    ConfigKind.BOOLEAN: ConfigType.BOOLEAN,
    ConfigKind.TEXT: ConfigType.STRING,
    ConfigKind.RATIO: ConfigType.DOUBLE,
    ConfigKind.LIST: ConfigType.LIST,
}
_LOG_DIRS: Final = "log.dirs"
_OF_ALL_GROUPS: Final = "group."  # the prefix of keys that are set for all groups at once


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A value that applies unless an earlier synonym has one."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A key and its value. The first of `synonyms` is the one that applies."""

    key: ConfigKey
    synonyms: tuple[Synonym, ...]
    is_read_only: bool

    @property
    def value(self) -> str | None:
        """As in Kafka, a text that is not set is null."""
        return (
            self.synonyms[0].value or None if self.key.none_text == "" else self.synonyms[0].value
        )

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


def config_type(key: ConfigKey) -> ConfigType:
    number = ConfigType.INT if key.maximum <= INT32_MAX else ConfigType.LONG
    return _TYPES.get(key.kind, number)


def topic_entries(
    config: TopicConfig,
    overrides: Mapping[str, str],
    *,
    defaults: TopicConfig,
    layers: ConfigLayers = NO_LAYERS,
) -> list[ConfigEntry]:
    """Every key of a topic. `overrides` are its own settings, `defaults` the broker's static ones,
    `layers` those made while the broker runs."""
    values, broker_values = config.effective(), defaults.effective()
    entries = []
    for key in CONFIG_KEYS:
        if key.name not in values:
            continue  # an internal key that is not set
        name = BROKER_NAMES.get(key.name, key.name)
        static = broker_values.get(key.name, key.default_text)
        synonyms = _broker_synonyms(key, name, static, layers)
        if key.name in overrides:
            own = Synonym(name=key.name, value=values[key.name], source=ConfigSource.TOPIC)
            synonyms = (own, *synonyms)
        elif values[key.name] != synonyms[0].value:
            # Another key decides: a compacted topic is not archived, whatever the default is.
            own = Synonym(name=key.name, value=values[key.name], source=ConfigSource.DEFAULT)
            synonyms = (own,)
        entries.append(ConfigEntry(key=key, synonyms=synonyms, is_read_only=False))
    return entries


def _broker_synonyms(
    key: ConfigKey, name: str, static: str | None, layers: ConfigLayers
) -> tuple[Synonym, ...]:
    """The layers of a broker key called `name`; `static` is its value in the configuration."""
    standard = key.render(key.default)
    found = [
        (layers.own.get(name), ConfigSource.DYNAMIC_BROKER),
        (layers.shared.get(name), ConfigSource.DYNAMIC_DEFAULT_BROKER),
        (None if static == standard else static, ConfigSource.BROKER),
        (standard, ConfigSource.DEFAULT),
    ]
    return tuple(
        Synonym(name=name, value=None if key.is_sensitive else value, source=source)
        for value, source in found
        if value is not None
    )


def broker_entries(
    static: RunningConfig, layers: ConfigLayers, data_dirs: list[str], port: int
) -> list[ConfigEntry]:
    """Every key of the broker, including the defaults of topics and what tools look for.

    `port` is the one that is listened on.
    """
    config = static.broker
    listening = config.listeners or f"PLAINTEXT://{config.host}:{port}"
    texts = {**static.texts(), _LOG_DIRS: ",".join(data_dirs), "listeners": listening}
    if config.advertised_host or config.advertised_port:
        host = config.advertised_host or config.host
        texts["advertised.listeners"] = f"PLAINTEXT://{host}:{config.advertised_port or port}"
    keys = [
        *BROKER_KEYS,
        *(default.key for default in TOPIC_DEFAULTS if not default.key.is_internal),
        *CLEANER_KEYS.values(),
        *(key for key in STORE_KEYS if key.name == _LOG_DIRS),
    ]
    entries = [
        ConfigEntry(
            key=key,
            synonyms=_broker_synonyms(key, key.name, texts[key.name], layers),
            is_read_only=key.name not in DYNAMIC_KEYS,
        )
        for key in keys
    ]
    return entries + _fact_entries(static.broker, layers)


def _fact_entries(config: BrokerConfig, layers: ConfigLayers) -> list[ConfigEntry]:
    """Keys that only Kafka has, as far as tools look for them."""
    described = {"broker.id": str(config.node_id), "log.dir": None}
    found = [(fact_key(name), value, ConfigSource.BROKER) for name, value in described.items()]
    found += [(key, value, ConfigSource.DEFAULT) for key, value in KAFKA_FACTS]
    entries = []
    for key, value, source in found:
        synonyms = [
            Synonym(name=key.name, value=layer[key.name], source=dynamic_source)
            for layer, dynamic_source in (
                (layers.own, ConfigSource.DYNAMIC_BROKER),
                (layers.shared, ConfigSource.DYNAMIC_DEFAULT_BROKER),
            )
            if key.name in layer
        ]
        own_source = ConfigSource.DEFAULT if value is None else source
        synonyms.append(Synonym(name=key.name, value=value, source=own_source))
        entries.append(
            ConfigEntry(
                key=key, synonyms=tuple(synonyms), is_read_only=key.name not in DYNAMIC_KEYS
            )
        )
    return entries


def shared_entries(texts: Mapping[str, str]) -> list[ConfigEntry]:
    """The settings of all brokers at once: only those that were made."""
    source = ConfigSource.DYNAMIC_DEFAULT_BROKER
    return [
        ConfigEntry(
            key=DYNAMIC_KEYS[name],
            synonyms=(Synonym(name=name, value=text, source=source),),
            is_read_only=False,
        )
        for name, text in sorted(texts.items())
        if name in DYNAMIC_KEYS
    ]


def group_entries(config: BrokerConfig, texts: Mapping[str, str]) -> list[ConfigEntry]:
    """Every key of a group; `texts` are its own settings, `config` has those of all groups."""
    values = config.effective()
    entries = []
    for name, key in GROUP_KEYS.items():
        broker_name = _OF_ALL_GROUPS + name
        synonyms = _broker_synonyms(key, broker_name, values[broker_name], NO_LAYERS)
        if name in texts:
            own = Synonym(name=name, value=texts[name], source=ConfigSource.GROUP)
            synonyms = (own, *synonyms)
        entries.append(ConfigEntry(key=key, synonyms=synonyms, is_read_only=False))
    return entries


def subscription_entries(
    keys: Mapping[str, ConfigKey], texts: Mapping[str, str]
) -> list[ConfigEntry]:
    """Every key of a subscription to client metrics; `texts` are those that are set."""
    entries = []
    for name, key in keys.items():
        default = Synonym(name=name, value=key.default_text, source=ConfigSource.DEFAULT)
        synonyms: tuple[Synonym, ...] = (default,)
        if name in texts:
            own = Synonym(name=name, value=texts[name], source=ConfigSource.CLIENT_METRICS)
            synonyms = (own, default)
        entries.append(ConfigEntry(key=key, synonyms=synonyms, is_read_only=False))
    return entries
