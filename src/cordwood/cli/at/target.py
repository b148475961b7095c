"""The target of a command: ``--at ./data`` is a directory, ``--at localhost:9092`` a broker.

    ./data  /srv/data  data            a data directory; commas join several of one store
    localhost:9092  [::1]:9092  :9092  a broker; commas join several of one cluster
    not given                          CORDWOOD_AT, else ./data if it is a directory

A text that names an existing directory, or contains a slash, is a directory.
"""

import os
import re
from typing import TYPE_CHECKING, Final

from cordwood.cli.at.connection import AtText
from cordwood.cli.failures import UsageError
from cordwood.errors import ConfigError
from cordwood.value_class import dataclass

if TYPE_CHECKING:
    from cordwood.security.clients.client_security import ClientSecurity

AT_VARIABLE: Final = "CORDWOOD_AT"
DEFAULT_DIRECTORY: Final = "data"

_ADDRESS: Final = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9._-]*):([0-9]{1,5})")
_URL: Final = re.compile(r"[a-z][a-z0-9+.-]*://")
_PORT_MAX: Final = 65_535


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryTarget:
    """A store, by its files. `paths` are its data directories in order."""

    paths: tuple[str, ...]

    def __str__(self) -> str:
        return ",".join(self.paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerTarget:
    """A broker, by its address. `addresses` are tried in order.

    `security` says how to connect; None: in clear text, without a user.
    """

    addresses: tuple[tuple[str, int], ...]
    security: "ClientSecurity | None" = None

    def __str__(self) -> str:
        return ",".join(shown_address(*address) for address in self.addresses)


Target = DirectoryTarget | BrokerTarget


def shown_address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_target(text: str | None, *, may_be_new: bool = False) -> Target:
    """The target that ``--at`` names; `ConfigError` if `text` names none.

    With `may_be_new` a directory need not exist yet.
    """
    if isinstance(text, AtText):
        return _connected(text, parse_target(str(text), may_be_new=may_be_new))
    if text is None or not text.strip():
        return _default_target(may_be_new=may_be_new)
    given = text.strip()
    if _URL.match(given):
        raise ConfigError("--at", given, "must be a directory or host:port, not a URL")
    if os.path.isdir(given):
        return DirectoryTarget(paths=(given,))
    parts = [part.strip() for part in given.split(",") if part.strip()]
    addresses = [_parse_address(part) for part in parts]
    if parts and all(address is not None for address in addresses):
        return BrokerTarget(addresses=tuple(a for a in addresses if a is not None))
    return _directories(given, parts, may_be_new=may_be_new)


def _connected(text: AtText, target: Target) -> Target:
    """The target with the options beside ``--at``, which are for brokers."""
    if isinstance(target, BrokerTarget):
        return BrokerTarget(addresses=target.addresses, security=text.security())
    if text.flags:
        raise UsageError(f"{text.flags[0]} is for a broker, but --at names a directory: {target}")
    return target


def _default_target(*, may_be_new: bool) -> DirectoryTarget:
    if may_be_new or os.path.isdir(DEFAULT_DIRECTORY):
        return DirectoryTarget(paths=(DEFAULT_DIRECTORY,))
    raise UsageError(
        f"no target: ./{DEFAULT_DIRECTORY} does not exist; pass a directory (--at ./data) "
        f"or a broker (--at localhost:9092), or set {AT_VARIABLE}"
    )


def _parse_address(text: str) -> tuple[str, int] | None:
    if os.path.isdir(text) or os.sep in text:
        return None
    found = _ADDRESS.fullmatch(text)
    if found is None:
        return None
    port = int(found[2])
    if not 0 < port <= _PORT_MAX:
        raise ConfigError("--at", text, f"port must be 1 to {_PORT_MAX}")
    return found[1].strip("[]") or "127.0.0.1", port


def _directories(given: str, parts: list[str], *, may_be_new: bool) -> DirectoryTarget:
    for part in parts:
        if os.path.isdir(part):
            continue
        if os.path.exists(part):
            raise ConfigError("--at", given, f"{part} is a file, not a data directory")
        if not may_be_new:
            raise ConfigError(
                "--at",
                given,
                f"directory {part} does not exist; a broker is written as host:port",
            )
        if _looks_like_host(part):
            raise ConfigError(
                "--at",
                given,
                f"ambiguous: write {part}:9092 for a broker or ./{part} for a directory",
            )
    return DirectoryTarget(paths=tuple(parts))


def _looks_like_host(text: str) -> bool:
    return text == "localhost" or re.fullmatch(r"[0-9.]+|.*:.*", text) is not None
