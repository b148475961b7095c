"""Write the reference of the command line, docs/cli.md, from the commands themselves.

``python build_support/cli_reference.py`` rewrites it, ``--check`` fails when it is out of date.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

import typer  # noqa: E402

from cordwood.cli.app import app  # noqa: E402

REFERENCE = ROOT / "docs" / "cli.md"

_HEAD = """\
# The command line

<!-- made by build_support/cli_reference.py from the commands themselves -->

One command, `cordwood`, works on a data directory and on a running broker alike: `--at ./data` or
`--at localhost:9092`, or `CORDWOOD_AT` in the environment, else `./data` where that is a directory.
Several data directories of one store, and several brokers of one cluster, are joined by commas.

People see tables, and colours and progress bars on a terminal; programs give `--json` and get an
object per line. Data goes to standard output, everything else to standard error.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | it could not be done, or something is wrong: the message says what |
| 2 | the command line or a setting is wrong |
| 130, 143 | interrupted, or ended by SIGTERM |

`cordwood --help` lists the commands, `cordwood COMMAND --help` describes one. `--debug`, anywhere
on the line, shows where an error came from. `cordwood --install-completion` has the shell (bash,
zsh, fish) complete commands, options, topics, partitions, groups and configuration keys;
`cordwood --show-completion` prints the script instead.

"""
_EXAMPLES = re.compile(r"^\s*Examples?:\s*$", re.MULTILINE)
_MARK = "\b"  # before a paragraph whose lines stay as they are


def main(arguments: list[str]) -> int:
    current = reference()
    known = REFERENCE.read_text(encoding="utf-8") if REFERENCE.exists() else ""
    if current == known:
        return 0
    if arguments == ["--check"]:
        name = REFERENCE.relative_to(ROOT)
        print(f"{name} is out of date: run build_support/cli_reference.py")
        return 1
    REFERENCE.write_text(current, encoding="utf-8")
    return 0


def reference() -> str:
    """The whole page."""
    commands = list(walk(typer.main.get_command(app), ()))
    leaves = [(path, command) for path, command in commands if not is_group(command)]
    table = [
        f"| [`{' '.join(path)}`](#{anchor(path)}) | {escaped(summary(command))} |"
        for path, command in leaves
    ]
    overview = "\n".join(["| command | what it does |", "|---|---|", *table, ""])
    parts = [section(path, command) for path, command in leaves]
    return _HEAD + overview + "\n" + "\n".join(parts)


def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command below the root with its path, in the order of the help."""
    for name, below in command.commands.items():
        if below.hidden:
            continue
        yield (*path, name), below
        if is_group(below):
            yield from walk(below, (*path, name))


def is_group(command: Any) -> bool:
    return hasattr(command, "commands")


def anchor(path: tuple[str, ...]) -> str:
    return "cordwood-" + "-".join(path)


def summary(command: Any) -> str:
    """The first paragraph of the help, in one line."""
    return " ".join(inspect.cleandoc(command.help or "").split("\n\n")[0].split())


def section(path: tuple[str, ...], command: Any) -> str:
    text, examples = split_help(command)
    lines = [f"## cordwood {' '.join(path)}", "", text, "", "```", usage(path, command), "```", ""]
    arguments = [p for p in command.params if is_argument(p) and not p.hidden]
    options = [p for p in command.params if not is_argument(p) and not p.hidden]
    if arguments:
        lines += ["| argument | meaning |", "|---|---|", *map(argument_row, arguments), ""]
    if options:
        lines += ["| option | default | meaning |", "|---|---|---|", *map(option_row, options), ""]
    if examples:
        lines += ["```sh", *examples, "```", ""]
    return "\n".join(lines)


def split_help(command: Any) -> tuple[str, list[str]]:
    """What is said about a command, and its examples."""
    text = inspect.cleandoc(command.help or "").replace("\f", "")
    found = _EXAMPLES.search(text)
    said = text if found is None else text[: found.start()]
    shown = "" if found is None else text[found.end() :]
    examples = [line.strip() for line in shown.splitlines() if line.strip()]
    return paragraphs(said), examples


def paragraphs(text: str) -> str:
    """As Markdown: lists of lines that stay as they are become code."""
    made: list[str] = []
    for block in text.split("\n\n"):
        if _MARK in block:
            kept = "\n".join(line for line in block.splitlines() if line.strip() != _MARK)
            if kept.strip(f"{_MARK}\n "):
                made.append(f"```\n{kept.replace(_MARK, '')}\n```")
        elif block.strip():
            made.append(escaped_text(" ".join(block.split())))
    return "\n\n".join(made)


def usage(path: tuple[str, ...], command: Any) -> str:
    words = ["cordwood", *path]
    if any(not is_argument(p) for p in command.params):
        words.append("[OPTIONS]")
    for parameter in command.params:
        if is_argument(parameter):
            name = argument_name(parameter) + ("..." if parameter.nargs == -1 else "")
            words.append(name if parameter.required else f"[{name}]")
    return " ".join(words)


def is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def argument_name(parameter: Any) -> str:
    return str(parameter.metavar or parameter.name.upper())


def argument_row(parameter: Any) -> str:
    return f"| `{argument_name(parameter)}` | {meaning(parameter)} |"


def option_row(parameter: Any) -> str:
    names = sorted([*parameter.opts, *parameter.secondary_opts], key=lambda n: n.startswith("--"))
    value = "" if parameter.is_flag else f" {value_name(parameter)}"
    shown = ", ".join(
        f"`{name}{value}`" if name.startswith("--") else f"`{name}`" for name in names
    )
    return f"| {shown} | {default_of(parameter)} | {meaning(parameter)} |"


def value_name(parameter: Any) -> str:
    if parameter.metavar:
        return escaped(str(parameter.metavar))
    choices = parameter.type_descriptor.choices
    if choices:
        return escaped("\\|".join(str(getattr(choice, "value", choice)) for choice in choices))
    annotation = parameter.type_descriptor.annotation
    names = {"int": "NUMBER", "float": "NUMBER", "Path": "PATH", "str": "TEXT"}
    found = re.findall(r"int|float|Path|str", str(annotation))
    return names[found[0]] if found else "VALUE"


def default_of(parameter: Any) -> str:
    if parameter.required:
        return "required"
    value = parameter.default
    if parameter.is_flag and parameter.secondary_opts:
        return f"`{(parameter.opts if value else parameter.secondary_opts)[0]}`"
    if value in (None, False, "", [], ()):
        return ""
    return f"`{getattr(value, 'value', value)}`"


def meaning(parameter: Any) -> str:
    text = escaped_text(" ".join((parameter.help or "").split()))
    variables = [parameter.envvar] if isinstance(parameter.envvar, str) else parameter.envvar or []
    return text + "".join(f" Environment: `{name}`." for name in variables)


def escaped(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", text)


def escaped_text(text: str) -> str:
    """Words that Markdown would take as its own stay as they are; options are code."""
    coded = re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)(?![^`]*`[^`]*$)", r"`\1`", escaped(text))
    parts = re.split(r"(`[^`]*`)", coded)
    return "".join(
        part if part.startswith("`") else re.sub(r"([<>*\[\]_])", r"\\\1", part) for part in parts
    )


def documented_commands() -> Iterable[tuple[tuple[str, ...], Any]]:
    """Every command that is run, for the tests."""
    return [
        (path, command)
        for path, command in walk(typer.main.get_command(app), ())
        if not is_group(command)
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
