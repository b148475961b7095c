"""``cordwood config show``: every key, its value, and where that came from."""

from pathlib import Path
from typing import Annotated, Any, Final

import typer

from cordwood.cli.config_flags import complete_setting

config_app = typer.Typer(help="Look at the configuration.", no_args_is_help=True)

_COLUMNS: Final = ("key", "value", "source")


@config_app.callback()
def config() -> None:
    """Look at the configuration."""


@config_app.command("show")
def show(
    pattern: Annotated[
        str, typer.Argument(help="Only keys that contain this, as in: retention")
    ] = "",
    *,
    config_file: Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="FILE",
            help="A .toml or .properties file; else CORDWOOD_CONFIG or cordwood.toml.",
        ),
    ] = None,
    assignments: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            autocompletion=complete_setting,
            help="key=value, as for `cordwood serve`.",
        ),
    ] = None,
    changed: Annotated[
        bool, typer.Option("--changed", help="Only keys that are not at their default.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Everything about each key, as JSON.")
    ] = False,
) -> None:
    """Show the configuration `cordwood serve` would start with, and where each value is from.

    \b
    Examples:
      cordwood config show --changed
      cordwood config show retention --config server.properties
    """
    from cordwood.cli.render import output_for
    from cordwood.settings import DEFAULT_SOURCE, flag_assignments, load_settings

    settings = load_settings(file=config_file, flags=list(flag_assignments(assignments or [])))
    rows = [
        row
        for row in setting_rows(settings)
        if pattern in row["key"] and not (changed and row["source"] == DEFAULT_SOURCE)
    ]
    output_for(as_json=as_json).table(_COLUMNS, rows)
    if pattern and not rows and not as_json:
        among = "keys that were set" if changed else "keys"
        typer.secho(f"none of the {among} contains {pattern!r}", err=True)
    for name, _, source in settings.without_effect:
        typer.secho(f"{name} (from {source}) is accepted and has no effect", err=True)


def setting_rows(settings: Any) -> list[dict[str, Any]]:
    """A row per key: what it is, what it is for, how else it can be set."""
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
