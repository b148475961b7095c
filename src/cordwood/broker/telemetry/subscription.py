"""A subscription to metrics of clients: which metrics, how often, of which clients. Pure."""

import re
from collections.abc import Mapping
from typing import Final

from cordwood.broker.patterns.topic_pattern import TopicPattern
from cordwood.broker.patterns.topic_pattern_syntax import InvalidPatternError
from cordwood.errors import ConfigError
from cordwood.log.rules.config_key import ConfigKey, ConfigKind
from cordwood.value_class import dataclass

ALL_METRICS: Final = "*"
_METRICS: Final = "metrics"
_INTERVAL: Final = "interval.ms"
_MATCH: Final = "match"

# Each new client is compared with each subscription.
SUBSCRIPTIONS_MAX: Final = 200
_NAME_CHARS_MAX: Final = 249
_ITEMS_MAX: Final = 1000
_PATTERN_CHARS_MAX: Final = 512
_VALUE_CHARS_MAX: Final = 128
# Python's `re` can be kept busy for years, with the interpreter's lock held. The patterns of topic
# names cannot, but know their characters only: any other counts as an underscore.
_NO_NAME: Final = re.compile(r"[^a-zA-Z0-9._-]")
_NO_SYNTAX: Final = re.compile(r"(?<![?a-z])[:]|[\s/@#%~;'\"!&<>]")

SUBSCRIPTION_KEYS: Final[Mapping[str, ConfigKey]] = {
    key.name: key
    for key in (
        ConfigKey(
            name=_METRICS,
            kind=ConfigKind.LIST,
            default_text="",
            doc="Prefixes of the names of the metrics that clients send; *: all; empty: none.",
        ),
        ConfigKey(
            name=_INTERVAL,
            kind=ConfigKind.INTEGER,
            default_text="300000",
            doc="How often a client sends them.",
            minimum=100,
            maximum=3_600_000,
        ),
        ConfigKey(
            name=_MATCH,
            kind=ConfigKind.LIST,
            default_text="",
            doc="Which clients: selector=pattern pairs, and a client must match all of them. "
            "Selectors are client_instance_id, client_id, client_software_name, "
            "client_software_version, client_source_address and client_source_port. Empty: every "
            "client.",
        ),
    )
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFacts:
    """What is known of a client that asks for subscriptions."""

    instance_id: str
    client_id: str
    software_name: str = ""
    software_version: str = ""
    address: str = ""
    port: int = 0

    def of_selector(self, selector: str) -> str:
        """The text that a pattern of `match` is compared with."""
        return str(_SELECTORS[selector](self))[:_VALUE_CHARS_MAX]


_SELECTORS: Final = {
    "client_instance_id": lambda client: client.instance_id,
    "client_id": lambda client: client.client_id,
    "client_software_name": lambda client: client.software_name,
    "client_software_version": lambda client: client.software_version,
    "client_source_address": lambda client: client.address,
    "client_source_port": lambda client: client.port,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Validated on construction by `parse_subscription`."""

    name: str
    metrics: frozenset[str]
    interval_ms: int
    patterns: tuple[tuple[str, TopicPattern], ...] = ()

    def matches(self, client: ClientFacts) -> bool:
        """Whether every pattern matches the whole of its text. Without patterns it does."""
        try:
            return all(
                pattern.matches(_NO_NAME.sub("_", client.of_selector(selector)))
                for selector, pattern in self.patterns
            )
        except InvalidPatternError:
            return False  # it took too many steps


def parse_subscription(name: str, texts: Mapping[str, str]) -> Subscription:
    """A subscription from its settings. Raises `ConfigError`."""
    if not name or len(name) > _NAME_CHARS_MAX:
        raise ConfigError(
            "client-metrics", name[:40], f"a name has 1 to {_NAME_CHARS_MAX} characters"
        )
    for key, text in texts.items():
        if key not in SUBSCRIPTION_KEYS:
            raise ConfigError(
                key, text, f"is not a key of client metrics: {', '.join(SUBSCRIPTION_KEYS)}"
            )
    metrics = _items(texts, _METRICS)
    interval = SUBSCRIPTION_KEYS[_INTERVAL]
    interval_ms = interval.parse(texts.get(_INTERVAL, interval.default_text))
    assert isinstance(interval_ms, int)
    return Subscription(
        name=name,
        metrics=frozenset(metrics),
        interval_ms=interval_ms,
        patterns=tuple(_pattern(item) for item in _items(texts, _MATCH)),
    )


def _items(texts: Mapping[str, str], key: str) -> list[str]:
    items = [item for part in texts.get(key, "").split(",") if (item := part.strip())]
    if len(items) > _ITEMS_MAX:
        raise ConfigError(key, f"{len(items)} items", f"at most {_ITEMS_MAX} are allowed")
    return items


def _pattern(item: str) -> tuple[str, TopicPattern]:
    selector, equals, text = (part.strip() for part in item.partition("="))
    if selector not in _SELECTORS or not equals or not text or "=" in text:
        raise ConfigError(
            _MATCH, item, f"must be selector=pattern, with a selector of {', '.join(_SELECTORS)}"
        )
    if len(text) > _PATTERN_CHARS_MAX:
        raise ConfigError(_MATCH, f"{text[:40]}...", f"has more than {_PATTERN_CHARS_MAX} chars")
    try:
        return selector, TopicPattern(_NO_SYNTAX.sub("_", text))
    except InvalidPatternError as error:
        raise ConfigError(_MATCH, item, f"is not a regular expression: {error}") from error
