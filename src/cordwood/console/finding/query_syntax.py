"""The grammar of a search, from text to a tree. Nothing in it is ever evaluated as code.

order paid            both words, in the key or the value
"order paid"          exactly this text
/ord(er)?-[0-9]+/     a regular expression of RE2, which takes linear time
key:user-42           the key contains it;  key=user-42  the key is it
header.trace:abc      a header contains it
value.order.id = 42   a field of a JSON value;  = != < <= > >=  and  ~ for "contains"
partition:3  offset:100..200  size:>1MiB  time:>2026-11-01T09:00  time:..2026-11-02
and  or  not  ( )     "and" may be left out
"""

import re
from datetime import UTC, datetime
from typing import Final, NamedTuple, NoReturn

from cordwood.console.finding.query_tree import (
    ANY,
    HEADER,
    KEY,
    OFFSET,
    PARTITION,
    SIZE,
    TIME,
    VALUE,
    And,
    Not,
    Or,
    PathMatch,
    Query,
    RangeMatch,
    TextMatch,
)
from cordwood.quantities import parse_size

QUERY_CHARS_MAX: Final = 1_000
TERMS_MAX: Final = 40
DEPTH_MAX: Final = 20
REGEX_CHARS_MAX: Final = 200

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<open>\()
      | (?P<close>\))
      | "(?P<phrase>(?:[^"\\]|\\.)*)"
      | /(?P<regex>(?:[^/\\]|\\.)+)/
      | (?P<path>value(?:\.[^\s.()"=!<>~:]+)+)\s*(?P<op>!=|<=|>=|=|<|>|~)\s*
        (?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<literal>[^\s()]+))
      | (?P<field>key|value|partition|offset|time|size|header\.[^\s:=()"]+)(?P<colon>[:=])
        (?:"(?P<text>(?:[^"\\]|\\.)*)"|/(?P<pattern>(?:[^/\\]|\\.)+)/|(?P<word>[^\s()]+))
      | (?P<plain>[^\s()]+)
    )""",
    re.VERBOSE,
)
_RANGE: Final = re.compile(r"(?P<low>.*?)\.\.(?P<high>.*)")
_COMPARED: Final = re.compile(r"(?P<operator><=|>=|<|>)(?P<rest>.+)")
_ESCAPE: Final = re.compile(r"\\(.)")
_JSON_NUMBER: Final = re.compile(r"-?[0-9]{1,40}(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,5})?")
_NUMBER_MAX: Final = 1 << 62  # a bound, and one more than it, are numbers of 64 bits
_KEYWORDS: Final = {"true": True, "false": False, "null": None}


class QuerySyntaxError(ValueError):
    """The text is not a search. The message says what is wrong with it."""


class _Token(NamedTuple):
    kind: str  # open, close, and, or, not, term, end
    term: Query | None = None


def parse_query(text: str) -> Query:
    """The search that `text` says. Raises `QuerySyntaxError`."""
    if len(text) > QUERY_CHARS_MAX:
        raise QuerySyntaxError(f"it has {len(text)} characters; {QUERY_CHARS_MAX} are allowed")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise QuerySyntaxError("it has half a character, which no record has") from error
    parser = _Parser(_tokens(text))
    found = parser.either(0)
    if parser.kind == "close":
        raise QuerySyntaxError("a closing bracket has no opening one")
    assert parser.kind == "end", parser.kind
    return found


def _tokens(text: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(text.rstrip()):
        match = _TOKEN.match(text, at)
        assert match is not None, text[at:]  # `plain` takes any character that is not a bracket
        found.append(_token(match))
        at = match.end()
    if sum(token.kind == "term" for token in found) > TERMS_MAX:
        raise QuerySyntaxError(f"it has more than {TERMS_MAX} conditions")
    return [*found, _Token("end")]


def _token(match: re.Match[str]) -> _Token:
    given = match.groupdict()
    if given["open"]:
        return _Token("open")
    if given["close"]:
        return _Token("close")
    if given["phrase"] is not None:
        return _Token("term", _text(ANY, _unescaped(given["phrase"])))
    if given["regex"] is not None:
        return _Token("term", _regex(ANY, given["regex"]))
    if given["path"] is not None:
        return _Token("term", _path(given))
    if given["field"] is not None:
        return _Token("term", _field(given))
    plain = given["plain"]
    if plain.lower() in {"and", "or", "not"}:
        return _Token(plain.lower())
    if plain.startswith('"'):
        raise QuerySyntaxError("a quotation mark has no closing one")
    return _Token("term", _text(ANY, plain))


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(r"\1", text)


def _text(field: str, text: str, *, is_whole: bool = False, header: str | None = None) -> TextMatch:
    if not text and not is_whole:
        raise QuerySyntaxError("an empty text is in every record")
    return TextMatch(field=field, text=text, is_whole=is_whole, header=header)


def _regex(field: str, pattern: str, header: str | None = None) -> TextMatch:
    if len(pattern) > REGEX_CHARS_MAX:
        raise QuerySyntaxError(f"a regular expression may have {REGEX_CHARS_MAX} characters")
    text = pattern.replace("\\/", "/")
    _check_regex(text)
    return TextMatch(field=field, text=text, is_regex=True, header=header)


def _check_regex(pattern: str) -> None:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        pc.match_substring_regex(pa.array([b""], pa.binary()), pattern)
    except pa.ArrowInvalid as error:
        reason = str(error).rpartition(": ")[2] or str(error)
        raise QuerySyntaxError(f"/{pattern}/ is not a regular expression: {reason}") from None


def _path(given: dict[str, str | None]) -> PathMatch:
    path, operator = given["path"], given["op"]
    assert path is not None
    assert operator is not None
    literal: str | float | bool | None
    if given["quoted"] is not None:
        literal = text = _unescaped(given["quoted"])
    else:
        text = given["literal"] or ""
        literal = _literal(text)
    if operator in {"<", "<=", ">", ">="} and (literal is None or isinstance(literal, bool)):
        raise QuerySyntaxError(f"{path} {operator} needs a number or a text")
    return PathMatch(path=tuple(path.split(".")[1:]), operator=operator, literal=literal, text=text)


def _literal(text: str) -> str | float | bool | None:
    if text in _KEYWORDS:
        return _KEYWORDS[text]
    if not _JSON_NUMBER.fullmatch(text):
        return text
    return int(text) if text.lstrip("-").isdigit() else float(text)


def _field(given: dict[str, str | None]) -> Query:
    name, is_whole = given["field"] or "", given["colon"] == "="
    header = None
    field = name
    if name.startswith("header."):
        field, header = HEADER, name.partition(".")[2]
    if field in {KEY, VALUE, HEADER}:
        if given["pattern"] is not None:
            return _regex(field, given["pattern"], header)
        text = _unescaped(given["text"]) if given["text"] is not None else given["word"] or ""
        return _text(field, text, is_whole=is_whole, header=header)
    written = given["word"] if given["text"] is None else given["text"]
    if written is None:
        raise QuerySyntaxError(f"{field} needs a number, not a regular expression")
    return _range(field, written)


def _range(field: str, text: str) -> RangeMatch:
    span = _RANGE.fullmatch(text)
    if span is not None:
        low = _number(field, span["low"]) if span["low"] else None
        high = _number(field, span["high"]) if span["high"] else None
        if low is None and high is None:
            raise QuerySyntaxError(f"{field}:{text} has no bound")
        return RangeMatch(field=field, low=low, high=high)
    compared = _COMPARED.fullmatch(text)
    if compared is None:
        number = _number(field, text)
        return RangeMatch(field=field, low=number, high=number + 1)
    number = _number(field, compared["rest"])
    match compared["operator"]:
        case ">":
            return RangeMatch(field=field, low=number + 1)
        case ">=":
            return RangeMatch(field=field, low=number)
        case "<":
            return RangeMatch(field=field, high=number)
        case _:
            return RangeMatch(field=field, high=number + 1)


def _number(field: str, text: str) -> int:
    try:
        if field == TIME:
            number = parse_moment_ms(text)
        elif field == SIZE:
            number = parse_size(text)
        else:
            assert field in {PARTITION, OFFSET}, field
            number = int(text)
    except (ValueError, OverflowError):
        _refuse(field, text)
    if not (field == TIME or number >= 0) or not abs(number) < _NUMBER_MAX:
        _refuse(field, text)
    return number


def _refuse(field: str, text: str) -> NoReturn:
    examples = {
        TIME: "a time such as 2026-11-01T09:00 or 1793523600000",
        SIZE: "a size such as 1MiB",
    }
    raise QuerySyntaxError(f"{field}:{text} is not {examples.get(field, 'a whole number')}")


def parse_moment_ms(text: str) -> int:
    """Milliseconds since 1970, or an ISO time; without a zone it is in UTC."""
    given = text.strip()
    if given.isdigit() and len(given) > 8:
        number = int(given)
        if number >= 1 << 62:
            raise ValueError(f"{text} is too large")
        return number
    moment = datetime.fromisoformat(given)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return int(moment.timestamp() * 1000)


class _Parser:
    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._at = 0

    @property
    def kind(self) -> str:
        return self._tokens[self._at].kind

    def _next(self) -> _Token:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def either(self, depth: int) -> Query:
        if depth > DEPTH_MAX:
            raise QuerySyntaxError("brackets are nested too deep")
        items = [self._all(depth)]
        while self.kind == "or":
            self._next()
            items.append(self._all(depth))
        return items[0] if len(items) == 1 else Or(items=tuple(items))

    def _all(self, depth: int) -> Query:
        items = [self._one(depth)]
        while self.kind in {"and", "term", "not", "open"}:
            if self.kind == "and":
                self._next()
            items.append(self._one(depth))
        return items[0] if len(items) == 1 else And(items=tuple(items))

    def _one(self, depth: int) -> Query:
        token = self._next() if self.kind != "end" else _Token("end")
        if token.kind == "not":
            if depth > DEPTH_MAX:
                raise QuerySyntaxError("it is nested too deep")
            return Not(item=self._one(depth + 1))
        if token.kind == "open":
            inner = self.either(depth + 1)
            if self.kind != "close":
                raise QuerySyntaxError("an opening bracket has no closing one")
            self._next()
            return inner
        if token.term is not None:
            return token.term
        what = {"end": "it ends", "close": "a closing bracket comes"}.get(
            token.kind, f"“{token.kind}” comes"
        )
        raise QuerySyntaxError(f"{what} where a word or a condition is expected")
