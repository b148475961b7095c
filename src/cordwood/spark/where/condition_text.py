"""Parses the option `where`: a part of Spark's SQL, with the same meaning there.

    partition = 1 AND offset > 500
    timestamp >= '2026-01-31T12:00:00Z' AND timestamp < timestamp_millis(1769860800000)
    key = 'customer-1' OR key IN (X'00ff', CAST('b' AS BINARY))
    NOT (offset BETWEEN 10 AND 20) AND key IS NOT NULL

A time is a string with its zone, an age like '-10m', or milliseconds since 1970. The text may come
from anywhere: its length, its depth and the number of its values are bounded.
"""

import re
from datetime import UTC, datetime, timedelta
from typing import Final, Literal, NamedTuple, NoReturn

from cordwood.errors import ConfigError
from cordwood.quantities import INT64_MAX, TimestampMs, parse_duration_ms
from cordwood.spark.where.condition import (
    COLUMNS,
    NEVER,
    AllOf,
    AnyOf,
    Column,
    Comparison,
    Condition,
    KeyNullness,
    Membership,
    Operator,
    negated,
)

OPTION: Final = "where"

_TEXT_MAX: Final = 100_000
_DEPTH_MAX: Final = 50
_VALUES_MAX: Final = 10_000
_DIGITS_MAX: Final = 25
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<hex>[xX]'[^']*')|(?P<string>'(?:[^'\\]|\\.|'')*')|(?P<number>-?[0-9]+)"
    r"|`(?P<name>(?i:partition|offset|timestamp|key|value|topic))`"
    r"|(?P<word>[A-Za-z_][A-Za-z_0-9]*)|(?P<sign><=|>=|<>|!=|==|[=<>(),]))",
    re.DOTALL,
)
_ESCAPE: Final = re.compile(
    r"''|\\(?:u(?P<four>[0-9a-fA-F]{4})|U(?P<eight>[0-9a-fA-F]{8})"
    r"|(?P<octal>[01][0-7]{2})|(?P<one>.))",
    re.DOTALL,
)
_ESCAPED: Final = {
    "0": "\0",
    "b": "\b",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "Z": "\x1a",
    "%": "\\%",
    "_": "\\_",
}
_OPERATORS: Final[dict[str, Operator]] = {
    "=": "=",
    "==": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_TURNED: Final[dict[Operator, Operator]] = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_AGE: Final = re.compile(r"-\s*\d+\s*[a-zA-Z]+")
_EXAMPLE: Final = (
    "a condition compares partition, offset, timestamp and key with values, "
    "like: partition = 1 AND offset > 500"
)
_TIME_RULE: Final = (
    "a timestamp is compared with a time with its zone like '2026-01-31T12:00:00Z', "
    "with an age like '-10m', or with timestamp_millis(1769860800000)"
)
_KEY_RULE: Final = "a key is compared with 'text' or with bytes like X'00ff'"

_Kind = Literal["hex", "string", "number", "word", "sign", "end"]


class _Token(NamedTuple):
    kind: _Kind
    text: str
    position: int

    @property
    def upper(self) -> str:
        return self.text.upper() if self.kind in ("word", "sign") else ""


class _Literal(NamedTuple):
    """A value before it is known what it is compared with."""

    kind: Literal["number", "string", "bytes", "millis", "time"]
    value: int | str | bytes
    token: _Token


def parse_condition(text: str, *, now_ms: TimestampMs) -> Condition:
    """The condition in `text`. Ages are relative to `now_ms`.

    Raises `ConfigError`, which says what is wrong and where.
    """
    if len(text) > _TEXT_MAX:
        shown = text[:60] + "..."
        raise ConfigError(OPTION, shown, f"must have at most {_TEXT_MAX:,} characters")
    parser = _Parser(text, now_ms)
    found = parser.any_of(0)
    parser.expect_end()
    return found


class _Parser:
    """Recursive descent. For one text."""

    def __init__(self, text: str, now_ms: TimestampMs) -> None:
        self._text = text
        self._now_ms = now_ms
        self._values = 0
        self._tokens = self._split()
        self._at = 0

    def _split(self) -> list[_Token]:
        tokens: list[_Token] = []
        end = len(self._text.rstrip())
        at = 0
        while at < end:
            found = _TOKEN.match(self._text, at, end)
            if found is None:
                rest = self._text[at:end].lstrip()[:20]
                start = self._text.index(rest, at)
                what = "a string without its end" if rest.startswith("'") else "not understood"
                self._fail(what, _Token("sign", rest, start))
            group = found.lastgroup
            assert group is not None, found
            kind = "word" if group == "name" else group  # a column in backticks
            tokens.append(_Token(kind, found[group], found.start(group)))  # type: ignore[arg-type]
            at = found.end()
        tokens.append(_Token("end", "", len(self._text)))
        return tokens

    # --- tokens --------------------------------------------------------------------------------

    def _fail(self, what: str, token: _Token | None = None) -> NoReturn:
        token = token or self._tokens[self._at]
        place = "at the end" if token.kind == "end" else f"at {token.text!r}"
        rule = f"{what}, {place} (character {token.position + 1}); {_EXAMPLE}"
        raise ConfigError(OPTION, self._text, rule)

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at = min(self._at + 1, len(self._tokens) - 1)
        return token

    def _takes(self, *words: str) -> bool:
        """Whether these words follow; then they are taken."""
        found = [token.upper for token in self._tokens[self._at : self._at + len(words)]]
        if found != list(words):
            return False
        self._at += len(words)
        return True

    def _expect(self, word: str) -> None:
        if not self._takes(word):
            self._fail(f"{word} is missing")

    def expect_end(self) -> None:
        if self._tokens[self._at].kind != "end":
            self._fail("AND, OR or the end must follow")

    # --- the tree ------------------------------------------------------------------------------

    def any_of(self, depth: int) -> Condition:
        terms = [self._all_of(depth)]
        while self._takes("OR"):
            terms.append(self._all_of(depth))
        return terms[0] if len(terms) == 1 else AnyOf(tuple(terms))

    def _all_of(self, depth: int) -> Condition:
        terms = [self._term(depth)]
        while self._takes("AND"):
            terms.append(self._term(depth))
        return terms[0] if len(terms) == 1 else AllOf(tuple(terms))

    def _term(self, depth: int) -> Condition:
        if depth > _DEPTH_MAX:
            self._fail(f"more than {_DEPTH_MAX} levels of parentheses and NOT")
        if self._takes("NOT"):
            return negated(self._term(depth + 1))
        if self._takes("("):
            inner = self.any_of(depth + 1)
            self._expect(")")
            return inner
        return self._predicate()

    def _predicate(self) -> Condition:
        if not self._is_column():
            literal = self._literal()
            found = self._operator()
            column = self._column()
            value = self._value(column, literal)
            return Comparison(column=column, operator=_TURNED.get(found, found), value=value)
        column = self._column()
        if self._takes("IS", "NOT", "NULL"):
            return KeyNullness(is_null=False) if column == "key" else AllOf()
        if self._takes("IS", "NULL"):
            return KeyNullness(is_null=True) if column == "key" else NEVER
        is_in = not self._takes("NOT")
        if self._takes("IN"):
            return Membership(column=column, values=self._listed(column), is_in=is_in)
        if self._takes("BETWEEN"):
            low = self._value(column, self._literal())
            self._expect("AND")
            high = self._value(column, self._literal())
            between = AllOf(
                (
                    Comparison(column=column, operator=">=", value=low),
                    Comparison(column=column, operator="<=", value=high),
                )
            )
            return between if is_in else negated(between)
        if not is_in:
            self._fail("IN or BETWEEN must follow NOT")
        found = self._operator()
        return Comparison(column=column, operator=found, value=self._value(column, self._literal()))

    def _is_column(self) -> bool:
        token, behind = self._tokens[self._at], self._tokens[min(self._at + 1, self._last)]
        if token.upper == "TIMESTAMP" and behind.kind == "string":
            return False  # TIMESTAMP '2026-01-31T12:00:00Z'
        return token.kind == "word" and token.upper not in ("TIMESTAMP_MILLIS", "CAST")

    @property
    def _last(self) -> int:
        return len(self._tokens) - 1

    def _column(self) -> Column:
        token = self._tokens[self._at]
        for column in COLUMNS:
            if token.kind == "word" and token.text.lower() == column:
                self._next()
                return column
        if token.kind == "word" and token.text.lower() in ("value", "headers", "topic"):
            self._fail("only partition, offset, timestamp and key prune; filter the rows by others")
        self._fail("partition, offset, timestamp or key must stand here")

    def _operator(self) -> Operator:
        token = self._tokens[self._at]
        found = _OPERATORS.get(token.text) if token.kind == "sign" else None
        if found is None:
            self._fail("a comparison must stand here, or IN, BETWEEN or IS NULL")
        self._next()
        return found

    def _listed(self, column: Column) -> tuple[int, ...] | tuple[bytes, ...]:
        self._expect("(")
        values = [self._value(column, self._literal())]
        while self._takes(","):
            values.append(self._value(column, self._literal()))
        self._expect(")")
        return tuple(sorted(set(values)))  # type: ignore[return-value]

    # --- values --------------------------------------------------------------------------------

    def _literal(self) -> _Literal:
        self._values += 1
        if self._values > _VALUES_MAX:
            self._fail(f"more than {_VALUES_MAX:,} values")
        if self._takes("CAST", "("):
            token = self._string()
            for word in ("AS", "BINARY", ")"):
                self._expect(word)
            return _Literal("bytes", self._unquoted(token).encode(), token)
        if self._takes("TIMESTAMP_MILLIS", "("):
            token = self._next()
            if token.kind != "number":
                self._fail("a number must stand here", token)
            self._expect(")")
            return _Literal("millis", self._number(token), token)
        if self._takes("TIMESTAMP"):
            token = self._string()
            return _Literal("time", self._unquoted(token), token)
        token = self._next()
        match token.kind:
            case "number":
                return _Literal("number", self._number(token), token)
            case "string":
                return _Literal("string", self._unquoted(token), token)
            case "hex":
                try:
                    return _Literal("bytes", bytes.fromhex(token.text[2:-1]), token)
                except ValueError:
                    self._fail("must be pairs of hexadecimal digits", token)
            case _:
                self._fail("a value must stand here", token)

    def _number(self, token: _Token) -> int:
        if len(token.text) > _DIGITS_MAX:
            self._fail("the number is too large", token)
        return int(token.text)

    def _string(self) -> _Token:
        token = self._next()
        if token.kind != "string":
            self._fail("a string in single quotes must stand here", token)
        return token

    def _unquoted(self, token: _Token) -> str:
        """The text of a string, with its escapes as Spark reads them: two backslashes are one."""
        try:
            text = _ESCAPE.sub(_unescaped, token.text[1:-1])
            text.encode()
        except (ValueError, OverflowError):
            self._fail("the string has half a character, or an escape that is none", token)
        return text

    def _value(self, column: Column, literal: _Literal) -> int | bytes:
        """The literal as a value of that column."""
        value, token = literal.value, literal.token
        match column, literal.kind, value:
            case "key", "string", str(text):
                return text.encode()
            case "key", "bytes", bytes(found):
                return found
            case "key", _, _:
                self._fail(_KEY_RULE, token)
            case "timestamp", "number" | "millis", int(millis):
                return self._bounded(1000 * millis, token)
            case "timestamp", "string" | "time", str(text):
                return self._bounded(self._time_us(text, token), token)
            case "timestamp", _, _:
                self._fail(_TIME_RULE, token)
            case _, "number", int(number):
                return self._bounded(number, token)
            case _:
                self._fail(f"{column} is compared with a whole number", token)

    def _bounded(self, value: int, token: _Token) -> int:
        if not -INT64_MAX <= value <= INT64_MAX:
            self._fail("the number is too large", token)
        return value

    def _time_us(self, text: str, token: _Token) -> int:
        text = text.strip()
        try:
            if _AGE.fullmatch(text):
                return 1000 * (self._now_ms - parse_duration_ms(text.lstrip("- ")))
            when = datetime.fromisoformat(text)
        except (ValueError, OverflowError):
            self._fail(_TIME_RULE, token)
        if when.tzinfo is None:
            self._fail(f"the time zone is missing; {_TIME_RULE}", token)
        return (when - _EPOCH) // timedelta(microseconds=1)


def _unescaped(found: re.Match[str]) -> str:
    code = found["four"] or found["eight"]
    if code:
        return chr(int(code, 16))
    if found["octal"]:
        return chr(int(found["octal"], 8))
    one = found["one"]
    return "'" if one is None else _ESCAPED.get(one, one)
