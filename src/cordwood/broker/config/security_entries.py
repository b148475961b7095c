"""The keys of security as DescribeConfigs shows them. Secrets are in no entry.

Keys of TLS and SASL belong to listeners. Each is shown with the value of the first listener that
has it; a listener with another value is shown with its own key, ``listener.name.external.``...
"""

from collections.abc import Iterable, Iterator, Mapping

from cordwood.broker.config.config_entries import ConfigEntry, ConfigSource, Synonym
from cordwood.broker.config.keyed_config import render_keys
from cordwood.broker.config.sasl_config import SASL_KEYS
from cordwood.broker.config.security_config import (
    LISTENER_PREFIX,
    SECURITY_KEYS,
    ListenerConfig,
    SecurityConfig,
)
from cordwood.broker.config.tls_config import TLS_KEYS
from cordwood.log.rules.config_key import ConfigKey
from cordwood.value_class import replace


def security_entries(config: SecurityConfig) -> list[ConfigEntry]:
    """Every key of `SECURITY_KEYS`, and keys of listeners that differ from it."""
    texts = config.effective()
    of_listeners = [(listener, _texts_of(listener)) for listener in config.listeners]
    for _, own in of_listeners:
        texts = {**own, **texts}  # the first listener that has a key
    entries = [_entry(key, texts.get(key.name, key.default_text)) for key in SECURITY_KEYS]
    for listener, own in of_listeners:
        entries += _own_entries(listener, own, texts)
    return entries


def _texts_of(listener: ListenerConfig) -> dict[str, str]:
    texts = {} if listener.tls is None else render_keys(listener.tls)
    return texts if listener.sasl is None else texts | render_keys(listener.sasl.keys)


def _own_entries(
    listener: ListenerConfig, own: Mapping[str, str], shown: Mapping[str, str]
) -> Iterator[ConfigEntry]:
    prefix = f"{LISTENER_PREFIX}{listener.name.lower()}."
    keys: Iterable[ConfigKey] = (*TLS_KEYS, *SASL_KEYS)
    for key in keys:
        if key.name in own and own[key.name] != shown[key.name]:
            yield _entry(replace(key, name=prefix + key.name), own[key.name])


def _entry(key: ConfigKey, text: str) -> ConfigEntry:
    value = None if key.is_sensitive else text
    standard = key.render(key.default)
    source = ConfigSource.DEFAULT if text == standard else ConfigSource.BROKER
    synonyms = [Synonym(name=key.name, value=value, source=source)]
    if source is ConfigSource.BROKER:
        standard_value = None if key.is_sensitive else standard
        synonyms.append(Synonym(name=key.name, value=standard_value, source=ConfigSource.DEFAULT))
    return ConfigEntry(key=key, synonyms=tuple(synonyms), is_read_only=True)
