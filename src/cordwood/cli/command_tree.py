"""A group of commands whose modules are imported only when one of them runs.

The list of commands needs just a name and a line of help for each, so ``cordwood --help`` imports
no command. A test compares each line with the first paragraph of the command's own help.
"""

import importlib
import os
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager
from copy import copy
from functools import cache
from typing import Any, Final, Protocol

import typer
from typer.core import TyperGroup

from cordwood.cli.habits import in_command, in_group, in_root
from cordwood.cli.plain_parameters import skip_conversion
from cordwood.cli.terminal import discard_stdout
from cordwood.value_class import dataclass

# Commands are click's. Newer versions of Typer bring a click of their own, older ones use the
# package, so there is no one type to name.
ClickCommand = Any

_CONNECT: Final = "connect_"
_WITHOUT_BROKER: Final = ("spark ",)  # commands that work on files only


class HelpFormatter(Protocol):
    """The part of click's formatter that lists commands."""

    def section(self, name: str) -> AbstractContextManager[None]: ...
    def write_dl(self, rows: Sequence[tuple[str, str]]) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandPlace:
    """Where a command is: `place` is ``module:name`` of a function or a `typer.Typer`."""

    name: str
    place: str
    help: str

    def load(self) -> ClickCommand:
        """Import the command and let Typer build it."""
        module, _, attribute = self.place.partition(":")
        found = getattr(importlib.import_module(module), attribute)
        # Built inside another app, so that its help has the same plain style as the whole tree.
        within = typer.Typer(
            rich_markup_mode=None, add_completion=False, pretty_exceptions_enable=False
        )
        within.callback()(_no_options)
        if isinstance(found, typer.Typer):
            within.add_typer(found, name=self.name)
        else:
            within.command(self.name)(found)
        built: ClickCommand = typer.main.get_command(within)
        command = built.commands[self.name]
        below = getattr(command, "commands", {})
        for each in (command, *below.values()):
            skip_conversion(each)
        if below:
            _adapt(command, lambda words: in_group(self.name, words))
            for name, each in below.items():
                _adapt_leaf(each, f"{self.name} {name}")
            command.format_commands = lambda ctx, formatter: _write_commands(
                formatter, [(name, _first_paragraph(each)) for name, each in below.items()]
            )
        else:
            _adapt_leaf(command, self.name)
        return command


def _no_options() -> None:
    """The app around a command has no options."""


def _adapt(command: ClickCommand, change: Callable[[Sequence[str]], list[str]]) -> None:
    """Let `change` replace foreign words before the command parses its words."""
    parse = command.parse_args

    def parse_args(ctx: Any, args: list[str]) -> list[str]:
        found: list[str] = parse(ctx, args if ctx.resilient_parsing else change(args))
        return found

    command.parse_args = parse_args


def _adapt_leaf(command: ClickCommand, path: str) -> None:
    _add_connection(command, path)
    options = [each for each in command.params if each.param_type_name == "option"]
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    own = {
        name: not (each.is_flag or each.count)
        for each in options
        for name in (*each.opts, *each.secondary_opts)
    }
    first = arguments[0].metavar if arguments else None
    _adapt(command, lambda words: in_command(path, words, own, first))


# --- how a command connects ---------------------------------------------------------------------


def _add_connection(command: ClickCommand, path: str) -> None:
    """Give a command that takes ``--at`` the options that say how to connect.

    Their values travel with the text of ``--at``, so commands need not know of them. A name that
    the command has for an option of its own is the command's.
    """
    at = next((each for each in command.params if each.name == "at"), None)
    if at is None or path.startswith(_WITHOUT_BROKER):
        return
    from cordwood.cli.options import connection_options

    taken = {name for each in command.params for name in (each.name, *each.opts)}
    added = []
    for each in map(copy, _options_of(connection_options)):
        each.opts = [name for name in each.opts if name not in taken]
        if each.opts and each.name not in taken:
            added.append(each)
    for each in added:
        each.is_connection = True  # the reference of commands describes them once
    command.params = [*command.params, *added]
    _join_with_target(command, added)
    _write_apart(command, added)


@cache
def _options_of(function: Callable[..., None]) -> list[Any]:
    """The options of a command. Every command that takes ``--at`` gets copies of them."""
    within = typer.Typer(rich_markup_mode=None, add_completion=False)
    within.command()(function)
    built: ClickCommand = typer.main.get_command(within)
    return list(built.params)


def _join_with_target(command: ClickCommand, added: Sequence[Any]) -> None:
    parse = command.parse_args

    def parse_args(ctx: Any, args: list[str]) -> list[str]:
        from cordwood.cli.at.connection import AtText, ConnectionOptions

        found: list[str] = parse(ctx, args)
        given = {each.name: ctx.params.pop(each.name, None) for each in added}
        fields = {name.removeprefix(_CONNECT): value for name, value in given.items()}
        flags = tuple(
            each.opts[0]
            for each in added
            if given[each.name] and ctx.get_parameter_source(each.name).name == "COMMANDLINE"
        )
        values = {name: value for name, value in fields.items() if value}
        values["client_properties"] = tuple(fields.get("client_properties") or ())
        connection = ConnectionOptions(**values)
        if not connection.is_empty:
            at = ctx.params.get("at") or ""
            can_ask = not ctx.resilient_parsing
            if not at and connection.command_config and can_ask:
                at = connection.bootstrap_servers(os.environ) or ""
            ctx.params["at"] = AtText(at, connection, flags=flags, can_ask=can_ask)
        return found

    command.parse_args = parse_args


def _write_apart(command: ClickCommand, added: Sequence[Any]) -> None:
    """In the help, these options have a section of their own, after the command's."""
    write = command.format_options

    def format_options(ctx: Any, formatter: HelpFormatter) -> None:
        for each in added:
            each.hidden = True
        try:
            write(ctx, formatter)
        finally:
            for each in added:
                each.hidden = False
        with formatter.section("Connecting to a broker with TLS or as a user"):
            formatter.write_dl([_help_record(each, ctx) for each in added])

    command.format_options = format_options


def _help_record(option: Any, ctx: Any) -> tuple[str, str]:
    """The names and the help of an option, without its second name."""
    every = option.opts
    option.opts = [name for name in every if not name.startswith("--connect-")] or every
    try:
        found: tuple[str, str] = option.get_help_record(ctx)
        return found
    finally:
        option.opts = every


def _first_paragraph(command: ClickCommand) -> str:
    return " ".join((command.help or "").split("\n\n")[0].split())


def _write_commands(formatter: HelpFormatter, rows: list[tuple[str, str]]) -> None:
    """List the commands in the help, without cutting their lines short."""
    if rows:
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class CommandsOnDemand(MutableMapping[str, ClickCommand]):
    """Commands by name, in the order of `places`; each is loaded on first access."""

    def __init__(self, places: Sequence[CommandPlace]) -> None:
        self._places = {place.name: place for place in places}
        self._loaded: dict[str, ClickCommand] = {}

    def help_of(self, name: str) -> str | None:
        """The line of help for a command; None if it has no place in the list."""
        place = self._places.get(name)
        return None if place is None else place.help

    def __getitem__(self, name: str) -> ClickCommand:
        if name not in self._loaded:
            self._loaded[name] = self._places[name].load()
        return self._loaded[name]

    def __setitem__(self, name: str, command: ClickCommand) -> None:
        self._loaded[name] = command

    def __delitem__(self, name: str) -> None:
        if name not in self:
            raise KeyError(name)
        self._places.pop(name, None)
        self._loaded.pop(name, None)

    def __contains__(self, name: object) -> bool:
        return name in self._places or name in self._loaded

    def __iter__(self) -> Iterator[str]:
        return iter({**self._places, **self._loaded})

    def __len__(self) -> int:
        return len({**self._places, **self._loaded})


def group_on_demand(places: Sequence[CommandPlace]) -> type[TyperGroup]:
    """A class of groups that have the commands of `places` besides those registered with them."""

    class GroupOnDemand(TyperGroup):
        def __init__(self, **settings: Any) -> None:
            registered = settings.pop("commands", None) or {}
            super().__init__(**settings)
            self.commands: ClickCommand = CommandsOnDemand(places)
            self.commands.update(registered)

        def list_commands(self, ctx: object) -> list[str]:
            return list(self.commands)  # in the order of the list, without loading any

        def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
            return super().parse_args(ctx, args if ctx.resilient_parsing else in_root(args))

        def get_command(self, ctx: object, cmd_name: str) -> ClickCommand:
            """Find a command by its name or its singular: ``cordwood topic list`` works too."""
            plural = f"{cmd_name}s"
            is_singular = cmd_name not in self.commands and plural in self.commands
            return self.commands.get(plural if is_singular else cmd_name)

        def format_commands(self, ctx: object, formatter: HelpFormatter) -> None:
            """List the commands without loading any."""
            rows = [
                (name, self.commands.help_of(name) or _first_paragraph(self.commands[name]))
                for name in self.list_commands(ctx)
            ]
            _write_commands(formatter, rows)

        def invoke(self, ctx: Any) -> object:
            """Run the command. A closed standard output, as with ``| head``, is no failure."""
            try:
                try:
                    return super().invoke(ctx)
                finally:
                    sys.stdout.flush()
            except BrokenPipeError:
                discard_stdout()
                return None

    return GroupOnDemand
