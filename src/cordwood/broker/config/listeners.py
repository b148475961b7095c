"""Kafka's ``listeners`` text, ``PLAINTEXT://0.0.0.0:9092,EXTERNAL://:9093``, as values.

    listeners                        what the broker listens on
    advertised.listeners             what clients connect to, for the same names
    listener.security.protocol.map   how each name is protected

Listeners of controllers are ignored: there is one broker and no controller of its own.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

_LISTENER: Final = re.compile(r"([A-Za-z0-9_]+)://(\[[0-9A-Fa-f:.%]+\]|[^:/\s]*):([0-9]{1,5})")
_PORT_MAX: Final = 65535
_EVERYWHERE: Final = "0.0.0.0"
_CONTROLLER: Final = "CONTROLLER"


class SecurityProtocol(StrEnum):
    """How a listener is protected."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def is_encrypted(self) -> bool:
        """Clients speak TLS."""
        return self in {SecurityProtocol.SSL, SecurityProtocol.SASL_SSL}

    @property
    def has_sasl(self) -> bool:
        """Clients authenticate with SASL."""
        return self in {SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL}


class Listener(NamedTuple):
    """A name and an address."""

    name: str
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


def parse_listeners(text: str, *, controllers: frozenset[str]) -> tuple[Listener, ...]:
    """The listeners for clients, at least one. Raises ValueError with the rule it breaks.

    `controllers` are the names in ``controller.listener.names``.
    """
    found: dict[str, Listener] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        match = _LISTENER.fullmatch(item)
        if match is None or int(match[3]) > _PORT_MAX:
            raise ValueError("must be NAME://host:port, or several of these separated by commas")
        name, host, port = match[1].upper(), match[2].strip("[]") or _EVERYWHERE, int(match[3])
        if name in controllers or name == _CONTROLLER:
            continue
        if name in found:
            raise ValueError(f"must have each name once, but has {name} twice")
        if port and any(port == other.port and host == other.host for other in found.values()):
            raise ValueError(f"must have each address once, but has {host}:{port} twice")
        found[name] = Listener(name, host, port)
    if not found:
        raise ValueError("must have at least one listener for clients")
    return tuple(found.values())


def parse_protocols(text: str) -> dict[str, SecurityProtocol]:
    """``listener.security.protocol.map``: ``NAME:PROTOCOL,...``. Raises ValueError."""
    protocols: dict[str, SecurityProtocol] = {}
    for item in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = item.partition(":")
        if not colon:
            raise ValueError("must be NAME:PROTOCOL, or several of these separated by commas")
        protocols[name.strip().upper()] = _protocol(protocol.strip().upper())
    return protocols


def protocol_of(name: str, protocols: Mapping[str, SecurityProtocol]) -> SecurityProtocol:
    """The protocol of a listener: from the map, else from its name. Raises ValueError."""
    if name in protocols:
        return protocols[name]
    try:
        return SecurityProtocol(name)
    except ValueError:
        raise ValueError(
            f"{name} is not a security protocol; listener.security.protocol.map must have it"
        ) from None


def _protocol(text: str) -> SecurityProtocol:
    try:
        return SecurityProtocol(text)
    except ValueError:
        names = ", ".join(SecurityProtocol)
        raise ValueError(f"{text} is not a security protocol; use one of {names}") from None
