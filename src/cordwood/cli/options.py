"""Arguments and options that several commands share, and the parsing of their texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from cordwood.cli.at.target import AT_VARIABLE
from cordwood.cli.completion import (
    complete_group,
    complete_partition,
    complete_setting,
    complete_topic,
    complete_topic_key,
)
from cordwood.errors import ConfigError

AtOption = Annotated[
    str | None,
    typer.Option(
        "--at",
        metavar="TARGET",
        envvar=AT_VARIABLE,
        help="Data directory (./data) or broker (localhost:9092). Default: ./data.",
    ),
]
TopicArgument = Annotated[
    str, typer.Argument(metavar="TOPIC", autocompletion=complete_topic, help="Topic name.")
]
TopicsArgument = Annotated[
    list[str],
    typer.Argument(metavar="TOPIC", autocompletion=complete_topic, help="Topic names."),
]
PartitionsOption = Annotated[
    list[int] | None,
    typer.Option(
        "--partition",
        "-p",
        min=0,
        autocompletion=complete_partition,
        help="Only this partition; repeatable.",
    ),
]
GroupArgument = Annotated[
    str, typer.Argument(metavar="GROUP", autocompletion=complete_group, help="Group name.")
]
GroupsArgument = Annotated[
    list[str],
    typer.Argument(metavar="GROUP", autocompletion=complete_group, help="Group names."),
]
RecordFormatOption = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="FORMAT",
        help=r"Output format, for example '%k %v %o\n': %k key, %v value, %o offset, %p partition, "
        r"%t topic, %T time in ms, %I time, %h headers, %K and %S sizes of key and value.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON object per line.")]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
DryRunOption = Annotated[
    bool, typer.Option("--dry-run", help="Show what would be done; change nothing.")
]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        "-c",
        metavar="KEY=VALUE",
        autocompletion=complete_topic_key,
        help="Set a topic key, for example retention.ms=7d; repeatable.",
    ),
]
ConfigFileOption = Annotated[
    Path | None,
    typer.Option(
        "--config",
        metavar="FILE",
        help="Configuration file, .toml or .properties. "
        "Default: CORDWOOD_CONFIG, else cordwood.toml.",
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        autocompletion=complete_setting,
        help="Set any key of `cordwood config show`; repeatable.",
    ),
]


def parse_pairs(option: str, texts: Sequence[str] | None) -> dict[str, str]:
    """``key=value`` texts given to `option`; the same key twice is a `ConfigError`."""
    found: dict[str, str] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise ConfigError(option, text, "must be key=value")
        if key in found:
            raise ConfigError(option, text, f"{key} is given twice")
        found[key] = value
    return found


def parse_config(texts: Sequence[str] | None) -> dict[str, str]:
    """The keys and values of ``--config KEY=VALUE``."""
    return {key: value.strip() for key, value in parse_pairs("--config", texts).items()}
