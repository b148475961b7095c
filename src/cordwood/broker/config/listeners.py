"""Kafka's ``listeners`` text, ``PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093``, as host and port.

A broker has one listener for clients, without encryption. Listeners of controllers are ignored.
Several listeners for clients, or an encrypted one, are an error.
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

_LISTENER: Final = re.compile(r"([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.%]+\]|[^:/\s]*):([0-9]{1,5})")
_EVERYWHERE: Final = "0.0.0.0"
_CONTROLLER: Final = "CONTROLLER"
_PLAINTEXT: Final = "PLAINTEXT"


class Listener(NamedTuple):
    """The address that clients connect to."""

    host: str
    port: int


def parse_listeners(
    text: str, *, protocols: Mapping[str, str], controllers: frozenset[str]
) -> Listener:
    """The one listener for clients. Raises ValueError with the rule it breaks.

    `protocols` are from ``listener.security.protocol.map``, `controllers` the names in
    ``controller.listener.names``.
    """
    found: list[tuple[str, Listener]] = []
    for item in filter(None, map(str.strip, text.split(","))):
        match = _LISTENER.fullmatch(item)
        if match is None or int(match[3]) > 65535:
            raise ValueError("must be NAME://host:port, or several of these separated by commas")
        name = match[1].upper()
        if name not in controllers and name != _CONTROLLER:
            found.append((name, Listener(match[2].strip("[]") or _EVERYWHERE, int(match[3]))))
    if len(found) != 1:
        raise ValueError(f"must have one listener for clients, but has {len(found)}")
    name, listener = found[0]
    if protocols.get(name, name) != _PLAINTEXT:
        raise ValueError(f"must use PLAINTEXT, but {name} is {protocols.get(name, name)}")
    return listener


def parse_protocols(text: str) -> dict[str, str]:
    """``listener.security.protocol.map``: ``NAME:PROTOCOL,...``. Raises ValueError."""
    protocols: dict[str, str] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon:
            raise ValueError("must be NAME:PROTOCOL, or several of these separated by commas")
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols
