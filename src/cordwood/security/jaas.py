r"""JAAS, the text in ``sasl.jaas.config``, as Kafka reads it:

    org.apache.kafka.common.security.plain.PlainLoginModule required
        username="alice" password="se\"cret";

One entry: the class of a login module, a flag, and options; ended by a semicolon. Values are quoted
with ' or " and may have escapes, or are plain words. ``//`` and ``/* */`` are comments. Errors name
the option, never its value.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from cordwood.value_class import dataclass, field

_TEXT_MAX: Final = 256 * 1024
_FLAGS: Final = frozenset({"required", "requisite", "sufficient", "optional"})
_TOKEN: Final = re.compile(
    r"""
      (?P<skipped> \s+ | //[^\n]* | /\*.*?\*/ )
    | " (?P<double> (?:[^"\\\r\n]|\\[^\r\n])* ) "
    | ' (?P<single> (?:[^'\\\r\n]|\\[^\r\n])* ) '
    | (?P<word> [\w.$-]+ )
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
    module = next(tokens, None)
    flag = next(tokens, None)
    if module is None or module.is_sign or flag is None or flag.text.lower() not in _FLAGS:
        raise ValueError(
            'must begin with a login module and "required", such as '
            "org.apache.kafka.common.security.scram.ScramLoginModule required"
        )
    options: dict[str, str] = {}
    for token in tokens:
        if token.is_sign and token.text == ";":
            if next(tokens, None) is not None:
                raise ValueError("must have one login module, not several")
            return JaasEntry(module=module.text, options=options)
        if token.is_sign:
            raise ValueError("has an = without the name of an option before it")
        equals, value = next(tokens, None), next(tokens, None)
        if equals is None or equals.text != "=" or value is None or value.is_sign:
            # If a value has unquoted blanks, a part of it stands where a name is expected.
            raise ValueError(f"option {len(options) + 1} has no value, or its value needs quotes")
        options[token.text] = value.text
    raise ValueError("must end with a semicolon")


def render_jaas(module: str, options: Mapping[str, str]) -> str:
    """The text that `parse_jaas` and Kafka read back."""
    parts = [module, "required", *(f"{name}={_quoted(text)}" for name, text in options.items())]
    return " ".join(parts) + ";"


class _Token:
    __slots__ = ("is_sign", "text")

    def __init__(self, text: str, *, is_sign: bool = False) -> None:
        self.text = text
        self.is_sign = is_sign


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
            yield _Token(_ESCAPE.sub(_unescaped, content))
        else:
            yield _Token(content, is_sign=kind == "sign")


def _unescaped(found: re.Match[str]) -> str:
    escaped = found[1]
    if escaped[0] in "01234567":
        return chr(int(escaped, 8))
    return _LETTERS.get(escaped, escaped)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'
