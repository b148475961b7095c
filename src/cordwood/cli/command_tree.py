"""A group of commands whose modules are imported when one of them is run.

Listing them takes a name and a line each, so that ``cordwood --help`` and any single command pay
for what they use. A test holds each line equal to the first of the command's own help.
"""

import importlib
import sys
from collections.abc import Iterator, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from cordwood.cli.closed_output import let_go_of_stdout
from cordwood.cli.light_option_types import skip_conversion


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlace:
    """A command by where it is: `place` is ``module:name`` of a function or of a `typer.Typer`."""

    name: str
    place: str
    help: str

    def load(self) -> Any:
        """The command, as Typer makes it."""
        module, _, attribute = self.place.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        # Made within another one, so that help is as plain here as for the whole tree.
        within = typer.Typer(
            rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False
        )
        within.callback()(_nothing)
        if isinstance(found, typer.Typer):
            within.add_typer(found, name=self.name)
        else:
            within.command(self.name)(found)
        made: Any = typer.main.get_command(within)
        command = made.commands[self.name]
        below = getattr(command, "commands", {})
        for each in (command, *below.values()):
            skip_conversion(each)
        if below:
            command.format_commands = lambda ctx, formatter: _write_commands(
                formatter, [(name, _first_paragraph(each)) for name, each in below.items()]
            )
        return command


def _nothing() -> None:
    """It has no options of its own."""


def _first_paragraph(command: Any) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _write_commands(formatter: Any, rows: list[tuple[str, str]]) -> None:
    """The list of commands in the help, nothing of it cut short."""
    if rows:
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class CommandsOnDemand(MutableMapping[str, Any]):
    """Commands by name, in the order they were listed; made when they are asked for."""

    def __init__(self, places: Sequence[CommandPlace]) -> None:
        self._places = {place.name: place for place in places}
        self._made: dict[str, Any] = {}

    def help_of(self, name: str) -> str | None:
        """The line about a command, where that is known without making it."""
        place = self._places.get(name)
        return None if place is None else place.help

    def __getitem__(self, name: str) -> Any:
        if name not in self._made:
            self._made[name] = self._places[name].load()
        return self._made[name]

    def __setitem__(self, name: str, command: Any) -> None:
        self._made[name] = command

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._places.pop(name, None)
        self._made.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._made

    def __iter__(self) -> Iterator[str]:
        return iter({**self._places, **self._made})

    def __len__(self) -> int:
        return len({**self._places, **self._made})


def group_on_demand(places: Sequence[CommandPlace]) -> type[TyperGroup]:
    """A class of groups that have these commands, besides those that are registered with them."""

    class GroupOnDemand(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            registered = settings.pop("commands", None) or {}
            super().__init__(**settings)
            self.commands: Any = CommandsOnDemand(places)
            self.commands.update(registered)

        def list_commands(self, ctx: Any) -> list[str]:
            return list(self.commands)  # as they were listed, and none of them made

        def get_command(self, ctx: Any, cmd_name: str) -> Any:
            """Also by the singular of its name, as other tools have it: ``cordwood topic list``."""
            plural = f"{cmd_name}s"
            is_singular = cmd_name not in self.commands and plural in self.commands
            return self.commands.get(plural if is_singular else cmd_name)

        def format_commands(self, ctx: Any, formatter: Any) -> None:
            """For the list in the help no command is made."""
            rows = [
                (name, self.commands.help_of(name) or _first_paragraph(self.commands[name]))
                for name in self.list_commands(ctx)
            ]
            _write_commands(formatter, rows)

        def invoke(self, ctx: Any) -> Any:
            """Run the command. That nobody reads on, as behind ``| head``, is no failure."""
            try:
                try:
                    return super().invoke(ctx)
                finally:
                    sys.stdout.flush()
            except BrokenPipeError:
                let_go_of_stdout()
                return None

    return GroupOnDemand
