"""Configs whose fields are keys: see `config_field`. Reading them from a mapping, writing them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey
from cordwood.value_class import fields, replace

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

C = TypeVar("C", bound="DataclassInstance")


def keys_of(config: "type[DataclassInstance]") -> tuple[ConfigKey, ...]:
    """The keys of a config class, in order."""
    return tuple(field.metadata["key"] for field in fields(config))


def check_keys(config: "DataclassInstance") -> None:
    """Refuse a value that its key does not accept: for ``__post_init__``."""
    for key in keys_of(type(config)):
        key.check(getattr(config, key.field_name))


def parse_keys(defaults: C, mapping: Mapping[str, object]) -> C:
    """`defaults`, with the values of `mapping`. Raises `ConfigError`, also for other keys."""
    known = {key.name: key for key in keys_of(type(defaults))}
    values: dict[str, Any] = {}
    for name, raw in mapping.items():
        key = known.get(name)
        if key is None:
            raise ConfigError(name, raw, "is not a key of this kind")
        values[key.field_name] = key.parse(raw)
    return replace(defaults, **values)


def render_keys(config: "DataclassInstance") -> dict[str, str]:
    """Every key and its value as text."""
    return {key.name: key.render(getattr(config, key.field_name)) for key in keys_of(type(config))}
