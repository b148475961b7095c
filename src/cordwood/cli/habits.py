"""Words that people know from kcat, rpk and Kafka's scripts, accepted where their meaning is clear.

Before a command parses its words, foreign words become ours: ``-b`` is ``--at``, ``topics ls`` is
``topics list``. A word that has no counterpart, or means something else here, raises a
`UsageError` that names ours. The options of a command always win over foreign ones.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from cordwood.cli.failures import UsageError
from cordwood.value_class import dataclass

_PORT: Final = 9092
_END: Final = "--"


def _address(text: str) -> str:
    """``host1,host2:9093`` with the default port, as kcat completes it."""
    return ",".join(
        part if ":" in part or "/" in part else f"{part}:{_PORT}" for part in text.split(",")
    )


def _position(text: str) -> str:
    """An offset as kcat and rpk write it: ``s@1760000000000`` is a time."""
    if text == "stored":
        raise UsageError("-o stored: use --group GROUP to start at committed offsets")
    return text.removeprefix("s") if text.startswith("s@") else text.removeprefix("+")


def _single_replica(text: str) -> str:
    if text not in ("1", "-1"):
        raise UsageError(
            f"--replication-factor {text}: one broker is the whole cluster, so each partition has "
            "one replica; leave the option out"
        )
    return ""


def _same(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True, kw_only=True)
class Habit:
    """Foreign options with one meaning.

    words    ours, in place of a flag; None: the option has a value
    option   ours that takes the value; empty: the value is dropped once `value` has checked it
    value    turns their value into ours
    hint     what to use here; the option is then refused
    """

    names: tuple[str, ...]
    words: tuple[str, ...] | None = None
    option: str = ""
    value: Callable[[str], str] = _same
    hint: str = ""


FIRST: Final = "first argument"  # as an `option`: the value is the first argument

_TARGET: Final = Habit(
    names=(
        "-b",
        "--broker",
        "--brokers",
        "--broker-list",
        "--bootstrap-server",
        "--bootstrap-servers",
    ),
    option="--at",
    value=_address,
)
_EVERYWHERE: Final = (
    _TARGET,
    Habit(
        names=("-F", "--consumer.config", "--producer.config", "--consumer-config"),
        option="--command-config",
    ),
)
# How a command connects, each with whether a value follows: like --at, before the command, too.
CONNECTION: Final[Mapping[str, bool]] = {
    "--tls": False,
    "--ca": True,
    "--cert": True,
    "--cert-key": True,
    "--no-verify-host": False,
    "--user": True,
    "--password-file": True,
    "--mechanism": True,
    "--token-file": True,
    "--command-config": True,
    "--client-property": True,
    "-X": True,
}
# Some commands have these for something else. Before the command they are about the connection.
_SECOND_NAMES: Final = {
    name: f"--connect{name[1:]}" for name in ("--user", "--password-file", "--mechanism")
}
_ARGUMENTS: Final = {
    "TOPIC": Habit(names=("-t", "--topic", "--topics"), option=FIRST),
    "GROUP": Habit(names=("-g", "--group"), option=FIRST),
}
_BY_COMMAND: Final[Mapping[str, tuple[Habit, ...]]] = {
    "consume": (
        Habit(names=("-o", "--offset"), option="--from", value=_position),
        Habit(names=("--from-beginning",), words=("--from", "beginning")),
        Habit(names=("-c", "--max-messages", "--num"), option="--count"),
        Habit(names=("-J",), words=("--json",)),
        Habit(names=("-e", "--exit", "-q", "-u"), words=()),  # as it is anyway
        Habit(
            names=("--property", "--formatter-property", "--formatter", "-D", "-s"),
            hint=r"use --format '%k %v\n', --key-separator or --json",
        ),
        Habit(
            names=("--timeout-ms",),
            hint="leave it out: consume ends at the end of the topic unless --follow is given",
        ),
    ),
    "produce": (
        Habit(names=("-Z",), words=("--null-as", "")),
        Habit(names=("-l", "--sync"), words=()),  # as it is anyway
        Habit(
            names=("-z", "--compression-codec", "--compression"),
            hint="the topic decides: cordwood topics alter TOPIC --config compression.type=zstd",
        ),
        Habit(
            names=("--property", "--reader-property"),
            hint="use --key-separator : for lines with keys, or --json",
        ),
    ),
    "topics create": (
        Habit(names=("--replication-factor", "--replicas", "-r"), value=_single_replica),
        Habit(names=("--topic-config",), option="--config"),
    ),
    "topics alter": (
        Habit(names=("--add-config", "--set"), option="--config"),
        Habit(names=("--delete-config",), option="--unset"),
    ),
    "groups reset": (
        Habit(names=("--to-earliest",), words=("--to", "beginning")),
        Habit(names=("--to-latest",), words=("--to", "end")),
        Habit(names=("--to-offset", "--to-datetime"), option="--to"),
        Habit(names=("--all-topics",), words=()),  # as it is anyway
    ),
}
_LS: Final = {
    "ls": "list",
    "--list": "list",
    "show": "describe",
    "info": "describe",
    "--describe": "describe",
    "rm": "delete",
    "remove": "delete",
    "--delete": "delete",
}
_SUBCOMMANDS: Final[Mapping[str, Mapping[str, str]]] = {
    "topics": _LS
    | {"--create": "create", "--alter": "alter", "alter-config": "alter", "trim-prefix": "trim"},
    "acls": {
        "ls": "list",
        "--list": "list",
        "create": "add",
        "--add": "add",
        "rm": "remove",
        "delete": "remove",
        "--remove": "remove",
    },
    "groups": _LS | {"lag": "describe", "seek": "reset", "--reset-offsets": "reset"},
}
_COMMANDS: Final[Mapping[str, tuple[str, ...]]] = {
    "acl": ("acls",),
    "cat": ("consume",),
    "ls": ("topics", "list"),
    "version": ("--version",),
    "-V": ("--version",),
}
_TAIL: Final = Habit(names=("-n", "--lines"), option="--from", value=lambda text: f"-{text}")
_ABOUT_CLUSTER: Final = "`cordwood topics list` lists topics, `cordwood doctor` checks a broker"
_COMMAND_HINTS: Final[Mapping[str, str]] = {
    "broker": _ABOUT_CLUSTER,
    "brokers": _ABOUT_CLUSTER,
    "metadata": _ABOUT_CLUSTER,
    "-L": _ABOUT_CLUSTER,
    "-C": "use `cordwood consume TOPIC`; --follow waits for new records",
    "-P": "use `cordwood produce TOPIC`",
    "-G": "use `cordwood consume TOPIC --group GROUP`",
    "configs": "use `cordwood topics describe TOPIC --config` or `cordwood config show`",
    "add-partitions": "use `cordwood topics alter TOPIC --partitions N`; N is the new total",
}


def in_root(words: Sequence[str]) -> list[str]:
    """The words after ``cordwood``."""
    target, rest = _leading_target(words)
    if not rest:
        return [*target, *rest]
    first, behind = rest[0], list(rest[1:])
    if first in _COMMAND_HINTS:
        raise _hinted(first, _COMMAND_HINTS[first])
    if first == "help":
        return [*behind, "--help"]
    if first == "tail":
        own = {"--from": True}
        return ["consume", "--from", "-10", *target, *adapted(behind, (_TAIL,), own)]
    return _with_target(target, [*_COMMANDS.get(first, (first,)), *behind])


def in_group(group: str, words: Sequence[str]) -> list[str]:
    """The words after the name of a group of commands, as ``cordwood topics``."""
    names = _SUBCOMMANDS.get(group, {})
    target, rest = _leading_target(words)
    if rest and rest[0].startswith("-"):  # Kafka's scripts: the command is an option, anywhere
        found = next((word for word in rest if word in names), None)
        if found is not None:
            rest.remove(found)
            rest.insert(0, found)
    if rest and rest[0] in _COMMAND_HINTS:
        raise _hinted(rest[0], _COMMAND_HINTS[rest[0]])
    return _with_target(target, [names.get(rest[0], rest[0]), *rest[1:]] if rest else rest)


def in_command(
    path: str, words: Sequence[str], own: Mapping[str, bool], argument: str | None
) -> list[str]:
    """The words after the name of a command, as ``cordwood topics create``.

    `own` are its options, each with whether a value follows; `argument` is what its first
    argument is called.
    """
    if path == "consume":
        _check_format(words)
    habits = [*_BY_COMMAND.get(path, ()), *_EVERYWHERE]
    if argument in _ARGUMENTS:
        habits.append(_ARGUMENTS[argument])
    return adapted(words, habits, own)


def adapted(words: Sequence[str], habits: Iterable[Habit], own: Mapping[str, bool]) -> list[str]:
    """The words with foreign options replaced. Values of options are left alone."""
    by_name = {name: habit for habit in habits for name in habit.names if name not in own}
    first: list[str] = []
    found: list[str] = []
    left = list(words)
    while left:
        word = left.pop(0)
        if word == _END:
            found += [word, *left]
            break
        name, value = _split(word, by_name)
        habit = by_name.get(name)
        if habit is None or (habit.option not in ("", FIRST) and habit.option not in own):
            found.append(word)
            if own.get(word) and left:
                found.append(left.pop(0))
            continue
        if habit.hint:
            raise _hinted(name, habit.hint)
        if habit.words is not None:
            found += habit.words
            continue
        if value is None and not left:
            raise UsageError(f"{name} requires a value")
        ours = habit.value(left.pop(0) if value is None else value)
        if habit.option == FIRST:
            first.append(ours)
        elif habit.option:
            found += [habit.option, ours]
    return [*first, *found]


def _split(word: str, known: Mapping[str, Habit]) -> tuple[str, str | None]:
    """``--name=value`` and ``-nvalue`` as name and value."""
    if word.startswith("--"):
        name, equals, value = word.partition("=")
        return name, value if equals else None
    short = word[:2]
    if word.startswith("-") and len(word) > 2 and short in known and known[short].words is None:
        return short, word[2:]
    return word, None


def _leading_target(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """``--at TARGET``, in any spelling, and how to connect, before a command; and the rest."""
    left = list(words)
    names = ("--at", *_TARGET.names)
    target: list[str] = []
    connection: list[str] = []
    second = frozenset(_SECOND_NAMES.values())
    while left:
        name, equals, value = left[0].partition("=")
        if CONNECTION.get(name) is False and not equals:
            connection.append(left.pop(0))
            continue
        if name not in names and name not in CONNECTION and name not in second:
            break
        if not (equals or len(left) > 1):
            break
        del left[0]
        given = value if equals else left.pop(0)
        if name in CONNECTION or name in second:
            connection += [_SECOND_NAMES.get(name, name), given]
        else:
            target = ["--at", given if name == "--at" else _address(given)]
    return [*target, *connection], left


def _with_target(target: Sequence[str], words: Sequence[str]) -> list[str]:
    return [*words[:1], *target, *words[1:]]


def _check_format(words: Sequence[str]) -> None:
    """kcat's ``-f`` is a format, ours follows: a word with a percent sign is one."""
    for word, following in pairwise(words):
        if word == _END:
            return
        if word == "-f" and "%" in following:
            raise UsageError(
                f"-f is --follow here; write --format {following!r} (%k key, %v value, %o offset)"
            )


def _hinted(word: str, hint: str) -> UsageError:
    return UsageError(f"no {'option' if word.startswith('-') else 'command'} {word}: {hint}")
