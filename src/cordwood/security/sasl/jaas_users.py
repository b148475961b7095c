r"""Users of PLAIN in Kafka's ``sasl.jaas.config``:

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret"     how Kafka's brokers log in to each other; not used
        user_admin="secret" user_alice="x";

A value is a word or quoted, with ``"`` or ``'``; a backslash in quotes escapes as in Java. There
are comments as in Java. Everything else is refused.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cordwood.errors import ConfigError

KEY: Final = "sasl.jaas.config"
_TEXT_CHARACTERS_MAX: Final = 1024 * 1024
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_MODULES: Final = (
    _PLAIN,
    "org.apache.kafka.common.security.scram.ScramLoginModule",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
)
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_OPTIONS_OF_CLIENTS: Final = frozenset({"username", "password", "serviceName"})
_USER: Final = "user_"

_TOKEN: Final = re.compile(
    r"(?P<space>\s+|//[^\n]*|/\*.*?\*/)"
    r"|(?P<word>[A-Za-z0-9_.$\-\u00a0-\uffff]+)"
    r"|\"(?P<double>(?:[^\"\\\n]|\\.)*)\""
    r"|'(?P<single>(?:[^'\\\n]|\\.)*)'"
    r"|(?P<sign>[=;])",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{2}|[0-7]{1,2}|.)", re.DOTALL)
_ESCAPES: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


def parse_jaas_users(text: str) -> Mapping[str, str]:
    """The passwords by user. Raises `ConfigError`, which does not contain the text."""
    if len(text) > _TEXT_CHARACTERS_MAX:
        raise _refusal(f"must have at most {_TEXT_CHARACTERS_MAX} characters")
    tokens = list(_tokens(text))
    if len(tokens) < 2 or tokens[0][0] != "word" or tokens[1][0] != "word":
        raise _refusal("must begin with a login module and a flag, such as required")
    module, flag = tokens[0][1], tokens[1][1]
    if module not in _MODULES:
        raise _refusal(f"unknown login module; known are {', '.join(_MODULES)}")
    if flag.lower() not in _FLAGS:
        raise _refusal("the flag must be required, requisite, sufficient or optional")
    if tokens[-1] != ("sign", ";"):
        raise _refusal("must end with a semicolon")
    rest = tokens[2:-1]
    if ("sign", ";") in rest:
        raise _refusal("must have one login module")
    users = _users(rest)
    if users and module != _PLAIN:
        raise _refusal(f"{_USER} options are for PlainLoginModule")
    return users


def _users(tokens: list[tuple[str, str]]) -> dict[str, str]:
    options: dict[str, str] = {}
    for at in range(0, len(tokens), 3):
        (kind, name), *assigned = tokens[at : at + 3]
        if kind == "sign" or len(assigned) < 2 or assigned[0] != ("sign", "="):
            raise _refusal('every option must be name="value"')
        value_kind, value = assigned[1]
        if value_kind == "sign":
            raise _refusal(f"the option {name} has no value")
        if name in options:
            raise _refusal(f"the option {name} is given twice")
        options[name] = value
    users: dict[str, str] = {}
    for name, value in options.items():
        if name in _OPTIONS_OF_CLIENTS:
            continue
        if not name.startswith(_USER) or name == _USER:
            raise _refusal(f'unknown option {name}; users are written as user_NAME="password"')
        if not value:
            raise _refusal(f"the password of {name.removeprefix(_USER)} is empty")
        users[name.removeprefix(_USER)] = value
    return users


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _refusal(f"cannot be read from character {at + 1} on")
        at = match.end()
        kind = match.lastgroup
        assert kind is not None
        if kind in {"double", "single"}:
            yield "quoted", _ESCAPE.sub(_unescaped, match[kind])
        elif kind != "space":
            yield kind, match[kind]


def _unescaped(match: re.Match[str]) -> str:
    escaped = match[1]
    if escaped.isdigit() and escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _ESCAPES.get(escaped, escaped)


def _refusal(reason: str) -> ConfigError:
    return ConfigError(KEY, "[hidden]", reason)
