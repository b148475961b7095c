"""``--config key=value``, as often as it takes."""

from collections.abc import Iterable, Sequence
from typing import Annotated

import typer

from cordwood.errors import ConfigError


def complete_topic_key(incomplete: str) -> list[str]:
    """Keys of a topic for the shell, with the sign that follows them."""
    from cordwood.log.rules.topic_config import CONFIG_KEYS

    names = sorted(key.name for key in CONFIG_KEYS if not key.is_internal)
    return [f"{name}=" for name in names if name.startswith(incomplete)]


def complete_setting(incomplete: str) -> list[str]:
    """Keys of `cordwood config show` for the shell."""
    from cordwood.settings import SETTING_KEYS

    names = sorted(key.name for key in SETTING_KEYS if not key.is_internal)
    return [f"{name}=" for name in names if name.startswith(incomplete)]


ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        autocompletion=complete_topic_key,
        help="A key of the topic, as in retention.ms=7d; repeatable.",
    ),
]


def parse_config(texts: Sequence[str] | None) -> dict[str, str]:
    """The keys and values; a key that is given twice is an error."""
    config: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError("--config", text, "must be key=value")
        if key in config:
            raise ConfigError("--config", text, f"{key} is given twice")
        config[key] = value.strip()
    return config


def shown_config(config: Iterable[tuple[str, str]]) -> str:
    """``key=value, key=value`` for a cell."""
    return ", ".join(f"{key}={value}" for key, value in sorted(config)) or "-"
