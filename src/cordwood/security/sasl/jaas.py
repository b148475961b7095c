r"""JAAS, the text in ``sasl.jaas.config``, as Kafka reads it:

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="se\"cret";

One entry: the class of a login module, a flag, and options; ended by a semicolon. Values are quoted
with ' or " and may have escapes as in Java, or are plain words. ``//`` and ``/* */`` are comments.
Everything else is refused. Errors name the option, never its value.

A client has its user and password in it. A broker has the users of PLAIN:

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="admin" password="secret"     how Kafka's brokers log in to each other; not used
        user_admin="secret" user_alice="x";
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple

from cordwood.value_class import dataclass, field

_TEXT_MAX: Final = 1024 * 1024
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule"
_MODULES: Final = (
    _PLAIN,
    "org.apache.kafka.common.security.scram.ScramLoginModule",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
)
_OPTIONS_OF_CLIENTS: Final = frozenset({"username", "password", "serviceName"})
_USER: Final = "user_"
_TOKEN: Final = re.compile(
    r"""
      (?P<skipped> \s+ | //[^\n]* | /\*.*?\*/ )
    | " (?P<double> (?:[^"\\\r\n]|\\[^\r\n])* ) "
    | ' (?P<single> (?:[^'\\\r\n]|\\[^\r\n])* ) '
    | (?P<word> [A-Za-z0-9_.$\-\u00a0-\U0010ffff]+ )
    | (?P<sign> [=;] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\([0-3][0-7]{0,2}|[4-7][0-7]?|.)", re.DOTALL)
_LETTERS: Final = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class JaasEntry:
    """A login module and its options. The options may be secret, so they are not shown."""

    module: str
    options: Mapping[str, str] = field(repr=False)

    @property
    def name(self) -> str:
        """The class without its package: ``ScramLoginModule``."""
        return self.module.rpartition(".")[2]


def parse_jaas(text: str) -> JaasEntry:
    """The one entry in `text`. Raises ValueError with the rule it breaks."""
    if len(text) > _TEXT_MAX:
        raise ValueError(f"must have at most {_TEXT_MAX} characters")
    tokens = _tokens(text)
    module, flag = next(tokens, _END), next(tokens, _END)
    if {module.kind, flag.kind} != {_Kind.WORD} or flag.text.lower() not in _FLAGS:
        raise ValueError(
            'must begin with a login module and "required", such as '
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
        )
    options: dict[str, str] = {}
    for token in tokens:
        if token == _SEMICOLON:
            if next(tokens, _END) != _END:
                raise ValueError("must have one login module, not several")
            return JaasEntry(module=module.text, options=options)
        if token.kind is _Kind.SIGN:
            raise ValueError("has an = without the name of an option before it")
        equals, value = next(tokens, _END), next(tokens, _END)
        if equals != _EQUALS or value.kind is _Kind.SIGN:
            # If a value has unquoted blanks, a part of it stands where a name is expected.
            raise ValueError(f"option {len(options) + 1} has no value, or its value needs quotes")
        if token.text in options:
            raise ValueError(f"option {len(options) + 1} is given twice")
        options[token.text] = value.text
    raise ValueError("must end with a semicolon")


def parse_plain_users(text: str) -> Mapping[str, str]:
    """The passwords of a broker's users of PLAIN, by user. Raises ValueError likewise."""
    entry = parse_jaas(text)
    if entry.module not in _MODULES:
        raise ValueError(f"unknown login module; known are {', '.join(_MODULES)}")
    users: dict[str, str] = {}
    for name, value in entry.options.items():
        if name in _OPTIONS_OF_CLIENTS:
            continue
        if not name.startswith(_USER) or name == _USER:
            raise ValueError(f'unknown option {name}; users are written as user_NAME="password"')
        if entry.module != _PLAIN:
            raise ValueError(f"{_USER} options are for PlainLoginModule")
        if not value:
            raise ValueError(f"the password of {name.removeprefix(_USER)} is empty")
        users[name.removeprefix(_USER)] = value
    return users


def render_jaas(module: str, options: Mapping[str, str]) -> str:
    """The text that `parse_jaas` and Kafka read back."""
    parts = [module, "required", *(f"{name}={_quoted(text)}" for name, text in options.items())]
    return " ".join(parts) + ";"


class _Kind(Enum):
    WORD = "word"
    QUOTED = "quoted"
    SIGN = "sign"  # of the end, too


class _Token(NamedTuple):
    kind: _Kind
    text: str


_EQUALS: Final = _Token(_Kind.SIGN, "=")
_SEMICOLON: Final = _Token(_Kind.SIGN, ";")
_END: Final = _Token(_Kind.SIGN, "")


def _tokens(text: str) -> Iterator[_Token]:
    position = 0
    while position < len(text):
        found = _TOKEN.match(text, position)
        if found is None:
            raise ValueError(f"cannot be read at character {position + 1}: a quote is missing?")
        position = found.end()
        kind = found.lastgroup
        if kind == "skipped":
            continue
        content = found[kind or 0]
        if kind in {"double", "single"}:
            yield _Token(_Kind.QUOTED, _ESCAPE.sub(_unescaped, content))
        else:
            yield _Token(_Kind.WORD if kind == "word" else _Kind.SIGN, content)


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _LETTERS.get(escaped, escaped)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
