"""Parses regular expressions of RE2's syntax into trees. Pure.

Topic names consist of 65 characters, so every set of characters here is a subset of these. The
flags ``s``, ``m`` and ``U`` are accepted and have no effect: names have no lines, and it only
matters whether a name matches, not where.

Syntax that RE2 does not have, such as backreferences and lookaround, is refused.
"""

import string
import unicodedata
from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from cordwood.errors import CordwoodError
from cordwood.value_class import dataclass, replace

PATTERN_CHARS_MAX: Final = 32_767  # the limit of a string in the protocol
_NESTING_MAX: Final = 100
_REPEAT_MAX: Final = 1000  # RE2's own limit

NAME_CHARS: Final = frozenset(string.ascii_letters + string.digits + "._-")
WORD_CHARS: Final = frozenset(string.ascii_letters + string.digits + "_")

_DIGITS: Final = frozenset(string.digits)
_PERL_SETS: Final[Mapping[str, frozenset[str]]] = {
    "d": _DIGITS,
    "w": WORD_CHARS,
    "s": frozenset(),
    "D": NAME_CHARS - _DIGITS,
    "W": NAME_CHARS - WORD_CHARS,
    "S": NAME_CHARS,
}
_POSIX_SETS: Final[Mapping[str, frozenset[str]]] = {
    "alnum": frozenset(string.ascii_letters + string.digits),
    "alpha": frozenset(string.ascii_letters),
    "ascii": NAME_CHARS,
    "blank": frozenset(),
    "cntrl": frozenset(),
    "digit": _DIGITS,
    "graph": NAME_CHARS,
    "lower": frozenset(string.ascii_lowercase),
    "print": NAME_CHARS,
    "punct": frozenset("._-"),
    "space": frozenset(),
    "upper": frozenset(string.ascii_uppercase),
    "word": WORD_CHARS,
    "xdigit": frozenset(string.hexdigits),
}
_CATEGORIES: Final = frozenset(
    {
        "C", "Cc", "Cf", "Co", "Cs", "L", "Ll", "Lm", "Lo", "Lt", "Lu", "M", "Mc", "Me", "Mn",
        "N", "Nd", "Nl", "No", "P", "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps",
        "S", "Sc", "Sk", "Sm", "So", "Z", "Zl", "Zp", "Zs",
    }
)  # fmt: skip
_CONTROLS: Final = {"a": "\a", "f": "\f", "t": "\t", "n": "\n", "r": "\r", "v": "\v"}
_FLAGS: Final = frozenset("imsU")


class InvalidPatternError(CordwoodError):
    """A regular expression that is invalid or exceeds a limit."""

    def __init__(self, reason: str, *, position: int = 0) -> None:
        super().__init__(f"at character {position}: {reason}")
        self.reason = reason
        self.position = position


class Place(Enum):
    """A place in a name that an expression can require."""

    START = auto()
    END = auto()
    WORD_BOUNDARY = auto()
    NO_WORD_BOUNDARY = auto()


_ESCAPED_PLACES: Final = {
    "A": Place.START,
    "z": Place.END,
    "b": Place.WORD_BOUNDARY,
    "B": Place.NO_WORD_BOUNDARY,
}


@dataclass(frozen=True, slots=True)
class OneOf:
    """One character of a set."""

    chars: frozenset[str]


@dataclass(frozen=True, slots=True)
class At:
    """A place between characters."""

    place: Place


@dataclass(frozen=True, slots=True)
class Series:
    """Expressions in sequence; an empty sequence is the empty match."""

    parts: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Choice:
    options: tuple["Node", ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """`node` at least `minimum` times and at most `maximum`; None means no limit."""

    node: "Node"
    minimum: int
    maximum: int | None


Node = OneOf | At | Series | Choice | Repeat


def parse_pattern(text: str) -> Node:
    """The tree of `text`. Raises `InvalidPatternError` with the position and the reason."""
    if len(text) > PATTERN_CHARS_MAX:
        raise InvalidPatternError(f"{len(text)} characters, the limit is {PATTERN_CHARS_MAX}")
    parser = _Parser(text)
    node = parser.choice(_Context())
    parser.expect_end()
    return node


@dataclass(frozen=True, slots=True)
class _Context:
    ignores_case: bool = False
    depth: int = 0


class _Parser:
    """Recursive descent: choice > series > repeat > atom."""

    __slots__ = ("_position", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._position = 0

    def choice(self, context: _Context) -> Node:
        if context.depth > _NESTING_MAX:
            raise self._error(f"groups are nested more than {_NESTING_MAX} deep")
        options: list[Node] = []
        parts: list[Node] = []
        while self._peek() not in ("", ")"):
            if self._take_if("|"):
                options.append(Series(tuple(parts)))
                parts = []
            elif self._take_if("(?"):
                context = self._special_group(context, parts)
            else:
                parts.append(self._repeated(self._atom(context)))
        options.append(Series(tuple(parts)))
        return options[0] if len(options) == 1 else Choice(tuple(options))

    def expect_end(self) -> None:
        if self._position < len(self._text):
            raise self._error("')' without '('")

    # --- groups ------------------------------------------------------------------------------

    def _special_group(self, context: _Context, parts: list[Node]) -> _Context:
        """After ``(?``: add a group to `parts`, or return the context with changed flags."""
        if self._take_if("P<") or self._take_if("<"):
            name = self._until(">", "a group's name")
            if not name.isidentifier():
                raise self._error(f"{name!r} is not a valid group name")
            parts.append(self._repeated(self._group(context)))
            return context
        ignores_case, is_set = context.ignores_case, True
        while (flag := self._next("flags of a group")) in _FLAGS or flag == "-":
            if flag == "-":
                if not is_set:
                    raise self._error("two '-' in the flags of a group")
                is_set = False
            elif flag == "i":
                ignores_case = is_set
        changed = replace(context, ignores_case=ignores_case)
        if flag == ")":
            return changed
        if flag != ":":
            raise self._error(f"'(?{flag}' is not supported by RE2")
        parts.append(self._repeated(self._group(changed)))
        return context

    def _group(self, context: _Context) -> Node:
        node = self.choice(replace(context, depth=context.depth + 1))
        if not self._take_if(")"):
            raise self._error("'(' without ')'")
        return node

    # --- repetition --------------------------------------------------------------------------

    def _repeated(self, node: Node) -> Node:
        limits = self._repetition()
        if limits is None:
            return node
        self._take_if("?")  # a lazy repetition: it matches the same names
        if self._repetition() is not None:
            raise self._error("a repeated repetition; put the inner one into a group")
        return Repeat(node, *limits)

    def _repetition(self) -> tuple[int, int | None] | None:
        if self._take_if("*"):
            return 0, None
        if self._take_if("+"):
            return 1, None
        if self._take_if("?"):
            return 0, 1
        return self._counted() if self._peek() == "{" else None

    def _counted(self) -> tuple[int, int | None] | None:
        """``{2}``, ``{2,}`` or ``{2,5}``; None for anything else, which is a literal brace."""
        end = self._text.find("}", self._position)
        low, comma, high = self._text[self._position + 1 : max(end, 0)].partition(",")
        if not _is_number(low) or not (high == "" or _is_number(high)):
            return None
        minimum = int(low)
        maximum = minimum if not comma else int(high) if high else None
        if minimum > _REPEAT_MAX or (maximum is not None and maximum > _REPEAT_MAX):
            raise self._error(f"a repetition of more than {_REPEAT_MAX} times")
        if maximum is not None and maximum < minimum:
            raise self._error(f"an invalid repetition: {minimum} to {maximum} times")
        self._position = end + 1
        return minimum, maximum

    # --- atoms -------------------------------------------------------------------------------

    def _atom(self, context: _Context) -> Node:
        char = self._next("an expression")
        if char == "(":
            return self._group(context)
        if char == "[":
            return OneOf(self._bracketed(context))
        if char == ".":
            return OneOf(NAME_CHARS)
        if char == "^":
            return At(Place.START)
        if char == "$":
            return At(Place.END)
        if char in "*+?":
            raise self._error(f"nothing to repeat before {char!r}")
        if char == "\\":
            return self._escaped(context)
        return _literal(char, context)

    def _escaped(self, context: _Context) -> Node:
        if self._take_if("Q"):
            end = self._text.find("\\E", self._position)
            quoted = self._text[self._position : end if end >= 0 else None]
            self._position += len(quoted) + (2 if end >= 0 else 0)
            return Series(tuple(_literal(char, context) for char in quoted))
        place = _ESCAPED_PLACES.get(self._peek())
        if place is not None:
            self._position += 1
            return At(place)
        found = self._escaped_set()
        return OneOf(found) if found is not None else _literal(self._escaped_char(), context)

    def _escaped_set(self) -> frozenset[str] | None:
        char = self._peek()
        if char in _PERL_SETS:
            self._position += 1
            return _PERL_SETS[char]
        if char not in ("p", "P"):
            return None
        self._position += 1
        name = self._until("}", "a category") if self._take_if("{") else self._next("a category")
        is_negated = (char == "P") != name.startswith("^")
        name = name.removeprefix("^")
        if name != "Latin" and name not in _CATEGORIES:
            raise self._error(f"unknown category {name!r}")
        category = "L" if name == "Latin" else name
        found = frozenset(c for c in NAME_CHARS if unicodedata.category(c).startswith(category))
        return NAME_CHARS - found if is_negated else found

    def _escaped_char(self) -> str:
        char = self._next("an escaped character")
        if char in _CONTROLS:
            return _CONTROLS[char]
        if char == "x":
            return self._hexadecimal()
        if char == "0" or (char in "1234567" and self._peek() in tuple("01234567")):
            digits = char
            while len(digits) < 3 and self._peek() in tuple("01234567"):
                digits += self._next("an octal digit")
            return chr(int(digits, 8))
        if char.isascii() and not char.isalnum():
            return char
        raise self._error(f"'\\{char}' is not supported by RE2")

    def _hexadecimal(self) -> str:
        if self._take_if("{"):
            digits = self._until("}", "a hexadecimal number")
        else:
            digits = self._text[self._position : self._position + 2]
            self._position += len(digits)
        if len(digits) not in range(1, 9) or not set(digits) <= set(string.hexdigits):
            raise self._error(f"{digits!r} is not a hexadecimal number")
        number = int(digits, 16)
        if number > 0x10FFFF:
            raise self._error(f"unknown character {digits}")
        return chr(number)

    # --- sets --------------------------------------------------------------------------------

    def _bracketed(self, context: _Context) -> frozenset[str]:
        is_negated = self._take_if("^")
        found: set[str] = set()
        is_first = True
        while is_first or self._peek() != "]":
            is_first = False
            if self._take_if("[:"):
                found |= self._posix_set()
                continue
            low = self._set_char()
            if isinstance(low, frozenset):
                found |= low
            elif self._is_range():
                self._position += 1
                high = self._set_char()
                if isinstance(high, frozenset) or high < low:
                    raise self._error("an invalid range of characters")
                found |= {char for char in NAME_CHARS if low <= char <= high}
            else:
                found.add(low)
        self._position += 1
        if context.ignores_case:
            found |= {char.swapcase() for char in found}
        return NAME_CHARS - found if is_negated else NAME_CHARS & found

    def _is_range(self) -> bool:
        """Whether a dash follows that is not the last character of the set."""
        ahead = self._text[self._position : self._position + 2]
        return len(ahead) == 2 and ahead[0] == "-" and ahead[1] != "]"

    def _set_char(self) -> str | frozenset[str]:
        if not self._take_if("\\"):
            return self._next("']'")
        found = self._escaped_set()
        return self._escaped_char() if found is None else found

    def _posix_set(self) -> frozenset[str]:
        name = self._until(":]", "a set's name")
        found = _POSIX_SETS.get(name.removeprefix("^"))
        if found is None:
            raise self._error(f"unknown set [:{name}:]")
        return NAME_CHARS - found if name.startswith("^") else found

    # --- text --------------------------------------------------------------------------------

    def _peek(self) -> str:
        return self._text[self._position : self._position + 1]

    def _next(self, what: str) -> str:
        char = self._peek()
        if not char:
            raise self._error(f"ends where {what} is expected")
        self._position += 1
        return char

    def _take_if(self, text: str) -> bool:
        if not self._text.startswith(text, self._position):
            return False
        self._position += len(text)
        return True

    def _until(self, end: str, what: str) -> str:
        found = self._text.find(end, self._position)
        if found < 0:
            raise self._error(f"{what} without {end!r}")
        text = self._text[self._position : found]
        self._position = found + len(end)
        return text

    def _error(self, reason: str) -> InvalidPatternError:
        return InvalidPatternError(reason, position=self._position)


def _literal(char: str, context: _Context) -> OneOf:
    wanted = {char, char.swapcase()} if context.ignores_case else {char}
    return OneOf(NAME_CHARS & wanted)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 9
