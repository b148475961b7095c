"""The words of ``cordwood serve``, read without Typer where they are plain.

Loading Typer and building the command takes a sixth of the time until a broker answers. Plain words
are options of the table below, each with a value that needs no check. For anything else, such as
help, an unknown option, a wrong number or an option that prints, Typer reads the words and reports
what is wrong with them. A test compares the results of both.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

# Options with a value: the parameter of `run_serve`, and what the value is.
_TEXTS: Final = {
    "--host": "host",
    "--advertised-host": "advertised_host",
    "--durability": "durability",
    "--otel-endpoint": "otel_endpoint",
    "--config": "config_file",
    "--log-format": "log_format",
    "--log-level": "log_level",
}
_LISTS: Final = {"--dir": "directories", "--at": "directories", "--set": "assignments"}
_NUMBERS: Final = {
    "--port": "port",
    "--advertised-port": "advertised_port",
    "--metrics-port": "metrics_port",
    "--processes": "processes",
}
_FLAGS: Final = {"--insecure": "insecure"}
PLAIN_OPTIONS: Final = {**_TEXTS, **_LISTS, **_NUMBERS, **_FLAGS}

_COMPLETION: Final = "_CORDWOOD_COMPLETE"  # a shell asks which words may follow
_DIGITS_MAX: Final = 9


def plain_serve(words: Sequence[str], environment: Mapping[str, str]) -> dict[str, Any] | None:
    """The arguments for `run_serve`; None: the words are for Typer."""
    if words[:1] != ["serve"] or _COMPLETION in environment:
        return None
    found: dict[str, Any] = {}
    left = list(reversed(words[1:]))
    while left:
        name, equals, value = left.pop().partition("=")
        if name in _FLAGS and not equals:
            found[_FLAGS[name]] = True
            continue
        if name not in PLAIN_OPTIONS or name in _FLAGS or not (equals or left):
            return None
        if not _put(found, name, value if equals else left.pop()):
            return None
    return found


def _put(found: dict[str, Any], name: str, value: str) -> bool:
    """Note an option. False if its value is not plain."""
    if not value or value.startswith("-"):
        return False
    if name in _LISTS:
        found.setdefault(_LISTS[name], []).append(value)
    elif name in _TEXTS:
        found[_TEXTS[name]] = value
    elif value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX:
        found[_NUMBERS[name]] = int(value)
    else:
        return False
    return True
