"""The settings of a broker process, from files, environment variables and flags.

Precedence: flags, then the environment, then the file, then the default. An unknown key is an
error that names similar ones. The source of each value is kept for ``cordwood config show``.

`setting_sources` reads them; nothing else does. A value may refer to a secret, such as
``${file:/run/secrets/key}``, see `secret_references`. What it refers to is used, and never shown:
neither by ``config show``, nor in errors, nor in logs.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from cordwood.broker.config.broker_config import BROKER_KEYS, BrokerConfig
from cordwood.broker.config.cluster_config import CLUSTER_KEYS, ClusterConfig
from cordwood.broker.config.foreign_keys import (
    WITHOUT_EFFECT,
    is_without_effect,
    why_refused,
)
from cordwood.broker.config.listeners import parse_listeners
from cordwood.broker.config.security_config import (
    LISTENER_PREFIX,
    SECURITY_KEYS,
    SecurityConfig,
    check_listener_key,
)
from cordwood.broker.config.setting_sources import (
    CONFIG_VARIABLE,
    Assignment,
    environment_assignments,
    file_assignments,
    flag_assignments,
    secured_assignments,
    variable_name,
)
from cordwood.broker.config.store_config import STORE_KEYS, StoreConfig
from cordwood.broker.config.topic_defaults import (
    BROKER_NAMES,
    COARSER_NAMES,
    TOPIC_DEFAULTS,
    parse_topic_defaults,
)
from cordwood.broker.observing.log_output import LOG_OUTPUT_KEYS, LogOutputConfig
from cordwood.errors import HIDDEN, ConfigError, is_secret_key
from cordwood.log.rules.config_key import ConfigKey, ConfigKind, ConfigValue
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.security.secret_references import (
    has_reference,
    is_reference,
    resolve_references,
)
from cordwood.value_class import dataclass, replace

__all__ = [
    "DEFAULT_SOURCE",
    "SETTING_KEYS",
    "Assignment",
    "Setting",
    "Settings",
    "flag_assignments",
    "load_settings",
    "settings_from",
    "variable_name",
]

DEFAULT_SOURCE: Final = "default"

_TOPIC_DEFAULT_KEYS: Final = tuple(default.key for default in TOPIC_DEFAULTS)
SETTING_KEYS: Final = (
    *BROKER_KEYS,
    *CLUSTER_KEYS,
    *SECURITY_KEYS,
    *STORE_KEYS,
    *_TOPIC_DEFAULT_KEYS,
    *LOG_OUTPUT_KEYS,
)
_CLUSTER_NAMES: Final = frozenset(key.name for key in CLUSTER_KEYS)
_KEYS_BY_NAME: Final = {key.name: key for key in SETTING_KEYS}
_SYNONYMS: Final = {"broker.id": "node.id", "log.dir": "log.dirs"}
_SHORTHANDS: Final = {  # of keys that describe one listener
    "listeners": ("host", "port"),
    "advertised.listeners": ("advertised.host", "advertised.port"),
}
_COARSER_KEYS: Final = {
    name: ConfigKey(
        name=name, kind=ConfigKind.INTEGER, default_text="-1", doc="", none_text="-1", minimum=1
    )
    for name in COARSER_NAMES
}
_KNOWN: Final = frozenset({*_KEYS_BY_NAME, *_SYNONYMS, *_COARSER_KEYS, *WITHOUT_EFFECT})


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A key, its effective value as text, and the source of the value."""

    key: ConfigKey
    value: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The whole configuration of a broker process."""

    broker: BrokerConfig
    cluster: ClusterConfig
    security: SecurityConfig
    store: StoreConfig
    topic_defaults: TopicConfig
    log_output: LogOutputConfig
    effective: tuple[Setting, ...]
    without_effect: tuple[Assignment, ...]  # accepted keys of Kafka for features Cordwood lacks
    open_secrets: tuple[str, ...] = ()  # files with secrets that every user of the machine can read


def load_settings(
    *,
    file: str | os.PathLike[str] | None = None,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[Assignment] = (),
) -> Settings:
    """The settings of this process; `environment` defaults to that of the process.

    `file` defaults to CORDWOOD_CONFIG, else to ``cordwood.toml`` if that exists. What
    ``cordwood serve --secure`` wrote into the data directory counts less than all of these.
    """
    variables = os.environ if environment is None else environment
    layers = [
        list(flags),
        list(environment_assignments(variables, _KNOWN)),
        file_assignments(file or variables.get(CONFIG_VARIABLE) or None),
    ]
    layers.append(secured_assignments(_data_dir(layers)))
    return _settings(layers, variables)


def settings_from(config: Mapping[str, object], *, source: str = "config") -> Settings:
    """The settings in `config` alone, without a file or the environment."""
    given = [Assignment(name, value, source) for name, value in config.items()]
    return _settings([given], os.environ)


def _settings(layers: Sequence[Sequence[Assignment]], environment: Mapping[str, str]) -> Settings:
    open_secrets: list[str] = []
    chosen = _choose(
        [[_resolved(each, environment, open_secrets) for each in layer] for layer in layers]
    )
    try:
        broker = BrokerConfig.parse(_values(chosen, BROKER_KEYS))
        cluster = ClusterConfig.parse(_values(chosen, CLUSTER_KEYS))
        security = SecurityConfig.assemble(broker, _security_values(chosen), cluster)
        store = StoreConfig.parse(_values(chosen, STORE_KEYS))
        topics = parse_topic_defaults(_values(chosen, _TOPIC_DEFAULT_KEYS))
        output_values = _values(chosen, LOG_OUTPUT_KEYS)
        output: dict[str, Any] = {
            key.field_name: key.parse(output_values[key.name])
            for key in LOG_OUTPUT_KEYS
            if key.name in output_values
        }
        log_output = LogOutputConfig(**output)
    except ConfigError as error:
        name = BROKER_NAMES.get(error.key, error.key)  # rules between topic keys name topic keys
        raise _with_source(error, chosen[name]) if name in chosen else error from None
    return Settings(
        broker=broker,
        cluster=cluster,
        security=security,
        store=store,
        topic_defaults=topics,
        log_output=log_output,
        effective=tuple(_effective(chosen)),
        without_effect=tuple(
            given
            for layer in layers
            for given in layer
            if is_without_effect(given.name)
            or (given.name in _CLUSTER_NAMES and not cluster.is_member)
        ),
        open_secrets=tuple(dict.fromkeys(open_secrets)),
    )


def _resolved(
    assignment: Assignment, environment: Mapping[str, str], open_secrets: list[str]
) -> Assignment:
    """The assignment with its references to secrets replaced. Lists have none."""
    text = assignment.value
    if not isinstance(text, str) or not has_reference(text):
        return assignment
    try:
        found = resolve_references(text, environment)
    except ValueError as error:
        shown = HIDDEN if is_secret_key(assignment.name) and not is_reference(text) else text
        raise ConfigError(assignment.name, shown, f"{error} (from {assignment.source})") from None
    open_secrets += found.open_files
    return assignment._replace(value=found.text, written=text)


def _values(chosen: Mapping[str, Assignment], keys: Iterable[ConfigKey]) -> dict[str, object]:
    return {key.name: chosen[key.name].value for key in keys if key.name in chosen}


def _security_values(chosen: Mapping[str, Assignment]) -> dict[str, object]:
    own = {name: at.value for name, at in chosen.items() if name.startswith(LISTENER_PREFIX)}
    return {**_values(chosen, SECURITY_KEYS), **own}


def _effective(chosen: Mapping[str, Assignment]) -> Iterator[Setting]:
    for key in SETTING_KEYS:
        given = chosen.get(key.name)
        value = key.default if given is None else key.parse(given.value)
        yield Setting(
            key=key,
            value=_shown(key, value, given),
            source=DEFAULT_SOURCE if given is None else given.source,
        )
    for name in sorted(chosen):
        if name.startswith(LISTENER_PREFIX):
            key = replace(check_listener_key(name, ""), name=name)
            value = key.parse(chosen[name].value)
            yield Setting(
                key=key, value=_shown(key, value, chosen[name]), source=chosen[name].source
            )


def _shown(key: ConfigKey, value: ConfigValue, given: Assignment | None) -> str:
    """A value as text: a reference to a secret instead of the secret."""
    written = None if given is None else given.written
    if written is not None and (is_reference(written) or not key.is_sensitive):
        return written
    return HIDDEN if key.is_sensitive and value is not None else key.render(value)


# --- precedence --------------------------------------------------------------------------------


def _choose(layers: Sequence[Sequence[Assignment]]) -> dict[str, Assignment]:
    """The effective assignment of each key, from the first layer that has one.

    Within a layer, the key's own name has precedence over its synonyms.
    """
    chosen: dict[str, Assignment] = {}
    for layer in layers:
        mine: dict[str, tuple[int, Assignment]] = {}
        for assignment in layer:
            for rank, canonical in _canonical(assignment):
                earlier = mine.get(canonical.name)
                if earlier is None or rank <= earlier[0]:
                    mine[canonical.name] = (rank, canonical)
        found = {name: assignment for name, (_, assignment) in mine.items()}
        for listeners, shorthands in _SHORTHANDS.items():
            if listeners in chosen:
                found = {name: at for name, at in found.items() if name not in shorthands}
            elif listeners in found:
                found[listeners] = _at_address(found[listeners], shorthands, {**found, **chosen})
        chosen = found | chosen
    return chosen


def _at_address(
    listeners: Assignment, shorthands: tuple[str, str], chosen: Mapping[str, Assignment]
) -> Assignment:
    """`listeners` with the host and port that were given separately, which count more.

    So ``--port 9999`` moves the one listener of a configuration file.
    """
    given = {name: str(chosen[name].value) for name in shorthands if name in chosen}
    if not given:
        return listeners
    names = chosen.get("controller.listener.names")
    ignored = frozenset(
        name.strip().upper() for name in _joined(names.value if names else "").split(",")
    )
    try:
        found = parse_listeners(_joined(listeners.value), controllers=ignored)
    except ValueError as error:
        raise ConfigError(
            listeners.name, listeners.shown, f"{error} (from {listeners.source})"
        ) from error
    if len(found) > 1:
        name = next(iter(given))
        raise ConfigError(
            name,
            given[name],
            f"is for one listener, but {listeners.name} has {len(found)}: change it there "
            f"(from {chosen[name].source})",
        )
    host, port = shorthands
    moved = f"{found[0].name}://{given.get(host, found[0].host)}:{given.get(port, found[0].port)}"
    return listeners._replace(value=moved, written=None)


def _joined(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def _canonical(assignment: Assignment) -> list[tuple[int, Assignment]]:
    """`assignment` in terms of `SETTING_KEYS`, each with a rank; the smallest rank wins."""
    name, value, source, _ = assignment
    if name in _KEYS_BY_NAME:
        return [(0, assignment)]
    if name in _SYNONYMS:
        return [(1, assignment._replace(name=_SYNONYMS[name]))]
    if name in COARSER_NAMES:
        canonical, unit_ms = COARSER_NAMES[name]
        try:
            count = _COARSER_KEYS[name].parse(value)
        except ConfigError as error:
            raise _with_source(error, assignment) from None
        in_ms = "-1" if count is None else str(int(str(count)) * unit_ms)
        return [(1 + unit_ms, Assignment(canonical, in_ms, source, assignment.written))]
    if name.startswith(LISTENER_PREFIX):
        try:
            check_listener_key(name, value)
        except ConfigError as error:
            raise _with_source(error, assignment) from None
        return [(0, assignment)]
    if is_without_effect(name):
        return []
    raise ConfigError(name, assignment.shown, f"{_why_unknown(name)} (from {source})")


def _why_unknown(name: str) -> str:
    refused = why_refused(name)
    if refused is not None:
        return refused
    if name in BROKER_NAMES:
        return f"is a topic key; the default for all topics is set by {BROKER_NAMES[name]}"
    from difflib import get_close_matches  # not at the top: only a mistake needs it

    near = get_close_matches(name, sorted(_KNOWN), cutoff=0.7)
    if near:
        return f"unknown key; did you mean {' or '.join(near)}?"
    return "unknown key; `cordwood config show` lists all keys"


def _with_source(error: ConfigError, given: Assignment) -> ConfigError:
    """The error with the source of the value, and without what a reference refers to."""
    value, reason = error.value, error.reason
    if given.written is not None:
        value, secret = given.written, str(given.value)
        reason = reason.replace(secret, given.written) if secret else reason
    return ConfigError(error.key, value, f"{reason} (from {given.source})")


def _data_dir(layers: Sequence[Sequence[Assignment]]) -> str:
    """The first data directory."""
    name = "log.dirs"
    relevant = [[given for given in layer if given.name in (name, "log.dir")] for layer in layers]
    chosen = _choose(relevant)
    value = chosen[name].value if name in chosen else _KEYS_BY_NAME[name].default_text
    return _joined(value).split(",")[0].strip()
