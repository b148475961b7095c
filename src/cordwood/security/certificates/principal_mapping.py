"""``ssl.principal.mapping.rules``: how the subject of a client's certificate becomes a user. Pure.

    RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/,RULE:^CN=(.*?),.*$/$1@prod/L,DEFAULT

The first rule whose pattern matches the whole subject decides; its replacement replaces what the
pattern matches, in lower or upper case if ``L`` or ``U`` follows. ``DEFAULT`` takes the subject as
it is. If no rule matches, the client is refused.

Kafka's patterns are Java's, ours are Python's. They agree on what such rules use; a pattern that
Python does not understand is refused. Matching may backtrack, so a subject has a limited length,
and a pattern must not repeat a group that itself repeats or has alternatives: such a pattern can
take longer than the universe exists.
"""

import re
import warnings
from collections.abc import Iterator
from typing import Final

from cordwood.value_class import dataclass

SUBJECT_CHARS_MAX: Final = 1000
_RULES_CHARS_MAX: Final = 100_000
_DEFAULT: Final = "DEFAULT"
_RULE: Final = "RULE:"
_UNTIL_SLASH: Final = re.compile(r"((?:\\.|[^\\/])*+)/", re.DOTALL)
_CASE: Final = re.compile(r"([LU]?)\s*(?:,|$)")
_REPEAT: Final = re.compile(r"[*+]|\{\d*,?\d*\}")
_JAVA_NAME: Final = re.compile(r"\(\?<(?=[A-Za-z])")
_REFERENCE: Final = re.compile(r"\\(.)|\$(\d+)|\$\{(\w+)\}|([\\$])", re.DOTALL)


@dataclass(frozen=True, slots=True)
class _Rule:
    """Without a pattern it is the DEFAULT. `parts` are text, or numbers of groups."""

    pattern: re.Pattern[str] | None = None
    parts: tuple[str | int, ...] = ()
    case: str = ""

    def apply(self, subject: str) -> str | None:
        if self.pattern is None:
            return subject
        if self.pattern.fullmatch(subject) is None:
            return None
        # As in Kafka: what matches is replaced, wherever and as often as it does.
        name = self.pattern.sub(self._expand, subject)
        return {"L": name.lower, "U": name.upper}.get(self.case, lambda: name)()

    def _expand(self, match: re.Match[str]) -> str:
        return "".join(
            (match[part] or "") if isinstance(part, int) else part for part in self.parts
        )


class PrincipalMapping:
    """The rules of one listener. Any thread may ask."""

    def __init__(self, text: str) -> None:
        """Raises ValueError with the rule that `text` breaks."""
        if len(text) > _RULES_CHARS_MAX:
            raise ValueError(f"must not be longer than {_RULES_CHARS_MAX} characters")
        self._rules = tuple(_parse(text))
        if not self._rules:
            raise ValueError("must have at least one rule; DEFAULT takes the whole subject")

    def name_of(self, subject: str) -> str | None:
        """The name of the user; None: the client is refused."""
        if len(subject) > SUBJECT_CHARS_MAX:
            return None
        for rule in self._rules:
            name = rule.apply(subject)
            if name is not None:
                return name or None
        return None


def _parse(text: str) -> Iterator[_Rule]:
    at, end = 0, len(text)
    while at < end:
        if text[at] in ", \t\r\n":
            at += 1
        elif text.startswith(_DEFAULT, at):
            at = _after(text, at + len(_DEFAULT), text[at:])[0]
            yield _Rule()
        elif text.startswith(_RULE, at):
            pattern = _UNTIL_SLASH.match(text, at + len(_RULE))
            replacement = pattern and _UNTIL_SLASH.match(text, pattern.end())
            if pattern is None or replacement is None:
                raise ValueError(f"{text[at:]} must be RULE:pattern/replacement/, with L or U or /")
            after, case = _after(text, replacement.end(), text[at:])
            yield _compiled(pattern[1], replacement[1], case)
            at = after
        else:
            raise ValueError(f"{text[at:]} must begin with RULE: or DEFAULT")


def _after(text: str, at: int, rule: str) -> tuple[int, str]:
    found = _CASE.match(text, at)
    if found is None:
        raise ValueError(f"{rule} must end with /, /L or /U, and a comma before the next rule")
    return found.end(), found[1]


def _compiled(pattern: str, replacement: str, case: str) -> _Rule:
    _refuse_nested_repeats(pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # sets such as [a&&b] mean something else in Java
            # As in Java, \w, \d, \s and (?i) are about ASCII: no other letter equals an s or k.
            compiled = re.compile(_JAVA_NAME.sub("(?P<", pattern), re.ASCII)
    except (re.error, Warning, RecursionError, OverflowError) as error:
        raise ValueError(f"the pattern {pattern} is not understood: {error}") from error
    return _Rule(compiled, tuple(_parts(replacement, compiled)), case)


def _parts(replacement: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    """Java's replacement text: ``$1``, ``${name}``, and a backslash before what is meant as is."""
    at = 0
    for match in _REFERENCE.finditer(replacement):
        yield replacement[at : match.start()]
        at = match.end()
        literal, number, name, stray = match.groups()
        if literal is not None:
            yield literal
        elif number is not None:
            yield from _numbered(number, pattern)
        elif name is not None and name in pattern.groupindex:
            yield pattern.groupindex[name]
        else:
            what = stray or match[0]
            raise ValueError(f"the replacement {replacement} has {what} without a group")
    yield replacement[at:]


def _numbered(digits: str, pattern: re.Pattern[str]) -> Iterator[str | int]:
    """As many digits as there is a group for; the rest is text. Without a group all of it is."""
    for count in range(len(digits), 0, -1):
        if int(digits[:count]) <= pattern.groups:
            yield int(digits[:count])
            yield digits[count:]
            return
    if not pattern.groups:
        raise ValueError(f"the replacement has ${digits}, but the pattern has no groups")
    yield f"${digits}"


def _refuse_nested_repeats(pattern: str) -> None:
    """Raises ValueError if a group that repeats or has alternatives is itself repeated."""
    groups = [False]  # of each open group: whether it repeats or has alternatives inside
    closed = False  # the same of the group that ended just now
    at = 0
    while at < len(pattern):
        character = pattern[at]
        repeat = _REPEAT.match(pattern, at)
        if repeat is not None:
            if closed:
                raise ValueError(f"the pattern {pattern} repeats a group that repeats")
            groups[-1] = True
            at = repeat.end()
            continue
        if character != "?":
            closed = False
        if character == "\\":
            at += 1
        elif character == "[":
            at = _end_of_set(pattern, at)
        elif character == "(":
            groups.append(False)
            if pattern.startswith("(?", at):
                at += 1  # not a repeat
        elif character == "|":
            groups[-1] = True
        elif character == ")" and len(groups) > 1:
            closed = groups.pop()
            groups[-1] |= closed
        at += 1


def _end_of_set(pattern: str, at: int) -> int:
    """The position of the bracket that ends the set of characters at `at`."""
    at += 1
    if pattern.startswith("^", at):
        at += 1
    if pattern.startswith("]", at):
        at += 1
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at
