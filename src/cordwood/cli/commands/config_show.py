"""``cordwood config show``: every key, its value, and where the value came from."""

from typing import TYPE_CHECKING, Annotated, Final

import typer

from cordwood.cli.options import ConfigFileOption, JsonOption, SetOption
from cordwood.cli.render import Column, Row, output_for
from cordwood.cli.terminal import say

if TYPE_CHECKING:
    from cordwood.settings import Settings

config_app = typer.Typer(help="Show the configuration.", no_args_is_help=True)

_COLUMNS: Final = (Column(name="key", is_whole=True), "value", "source")


@config_app.callback()
def config() -> None:
    """Show the configuration."""


@config_app.command("show")
def show(
    pattern: Annotated[
        str, typer.Argument(help="Only keys that contain this text, for example: retention")
    ] = "",
    *,
    config_file: ConfigFileOption = None,
    assignments: SetOption = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only keys whose value is not the default.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the configuration `cordwood serve` would start with, and where each value came from.

    With --json each key comes with its type, default, environment variable and description.

    \b
    Examples:
      cordwood config show --changed
      cordwood config show retention --config server.properties
    """
    from cordwood.settings import DEFAULT_SOURCE, flag_assignments, load_settings

    settings = load_settings(file=config_file, flags=list(flag_assignments(assignments or [])))
    every = setting_rows(settings)
    is_key = any(row["key"] == pattern for row in every)
    rows = [
        row
        for row in every
        if (row["key"] == pattern if is_key else pattern in row["key"])
        and not (changed and row["source"] == DEFAULT_SOURCE)
    ]
    output_for(as_json=as_json).table(_COLUMNS, rows)
    if pattern and not rows and not as_json:
        say(f"no {'changed ' if changed else ''}key contains {pattern!r}")
    for idle in settings.without_effect:
        say(f"{idle.name} (from {idle.source}) is accepted but has no effect")
    for path in settings.open_secrets:
        say(f"{path} has a secret and every user can read it: chmod 600 {path}")


def setting_rows(settings: "Settings") -> list[Row]:
    """A row for each key."""
    from cordwood.settings import variable_name

    return [
        {
            "key": setting.key.name,
            "value": setting.value,
            "source": setting.source,
            "default": setting.key.default_text,
            "type": setting.key.kind.value,
            "environment": variable_name(setting.key.name),
            "is_cordwoods_own": setting.key.since_cordwood,
            "doc": setting.key.doc,
        }
        for setting in settings.effective
    ]
