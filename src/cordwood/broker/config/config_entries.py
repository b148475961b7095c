"""Configuration entries: each key with its value and the source of the value.

The source is the first of these that sets the key: the topic, the broker's configuration, the
default. All of them together are the synonyms of the key.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from cordwood.broker.config.broker_config import BROKER_KEYS, BrokerConfig
from cordwood.broker.config.store_config import STORE_KEYS
from cordwood.broker.config.topic_defaults import BROKER_NAMES, TOPIC_DEFAULTS
from cordwood.log.rules.config_key import ConfigKey, ConfigKind
from cordwood.log.rules.topic_config import CONFIG_KEYS, TopicConfig
from cordwood.quantities import INT32_MAX


class ConfigSource(IntEnum):
    """The source of a value, with the protocol's numbers."""

    TOPIC = 1
    BROKER = 4
    DEFAULT = 5


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
# Keys of consumer groups are set for all groups at once, with this prefix.
_OF_ALL_GROUPS: Final = "group."
_GROUP_KEYS: Final = ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms")


@dataclass(frozen=True, slots=True, kw_only=True)
class Synonym:
    """A value that applies unless an earlier synonym has one."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A key and its value. The first of `synonyms` is the one that applies."""

    key: ConfigKey
    synonyms: tuple[Synonym, ...]
    is_read_only: bool

    @property
    def value(self) -> str:
        return self.synonyms[0].value

    @property
    def source(self) -> ConfigSource:
        return self.synonyms[0].source


def config_type(key: ConfigKey) -> ConfigType:
    number = ConfigType.INT if key.maximum <= INT32_MAX else ConfigType.LONG
    return _TYPES.get(key.kind, number)


def topic_entries(
    config: TopicConfig, overrides: Mapping[str, str], *, defaults: TopicConfig
) -> list[ConfigEntry]:
    """Every key of a topic. `overrides` are its own settings, `defaults` the broker's."""
    values, broker_values = config.effective(), defaults.effective()
    entries = []
    for key in CONFIG_KEYS:
        if key.name not in values:
            continue  # an internal key that is not set
        synonyms = _broker_synonyms(key, broker_values.get(key.name, key.default_text))
        if key.name in overrides:
            own = Synonym(name=key.name, value=values[key.name], source=ConfigSource.TOPIC)
            synonyms = (own, *synonyms)
        elif values[key.name] != synonyms[0].value:
            # Another key decides: a compacted topic is not archived, whatever the default is.
            own = Synonym(name=key.name, value=values[key.name], source=ConfigSource.DEFAULT)
            synonyms = (own,)
        entries.append(ConfigEntry(key=key, synonyms=synonyms, is_read_only=False))
    return entries


def _broker_synonyms(key: ConfigKey, value: str) -> tuple[Synonym, ...]:
    name = BROKER_NAMES.get(key.name, key.name)
    standard = key.render(key.default)
    default = Synonym(name=name, value=standard, source=ConfigSource.DEFAULT)
    if value == standard:
        return (default,)
    return Synonym(name=name, value=value, source=ConfigSource.BROKER), default


def broker_entries(
    config: BrokerConfig, defaults: TopicConfig, data_dirs: list[str]
) -> list[ConfigEntry]:
    """Every key of the broker, including the defaults of topics. All are read-only."""
    values = [(key, getattr(config, key.field_name)) for key in BROKER_KEYS]
    values += [
        (default.key, getattr(defaults, default.topic_key.field_name))
        for default in TOPIC_DEFAULTS
        if not default.key.is_internal
    ]
    values += [(key, tuple(data_dirs)) for key in STORE_KEYS if key.name == _LOG_DIRS]
    return [_broker_entry(key, key.render(value)) for key, value in values]


def group_entries(config: BrokerConfig) -> list[ConfigEntry]:
    """Every key of a group, with the broker's values. All are read-only."""
    values = config.effective()
    entries = []
    for key in BROKER_KEYS:
        name = key.name.removeprefix(_OF_ALL_GROUPS)
        if name in _GROUP_KEYS:
            of_broker = _broker_entry(key, values[key.name])
            entries.append(replace(of_broker, key=replace(key, name=name)))
    return entries


def _broker_entry(key: ConfigKey, value: str) -> ConfigEntry:
    standard = key.render(key.default)
    synonyms: tuple[Synonym, ...] = (
        Synonym(name=key.name, value=standard, source=ConfigSource.DEFAULT),
    )
    if value != standard:
        set_value = Synonym(name=key.name, value=value, source=ConfigSource.BROKER)
        synonyms = (set_value, *synonyms)
    return ConfigEntry(key=key, synonyms=synonyms, is_read_only=True)
