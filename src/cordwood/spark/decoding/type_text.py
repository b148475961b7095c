"""Schemas as people write them and as tables store them, to and from Arrow's types.

People write Spark's DDL: ``id BIGINT NOT NULL, tags ARRAY<STRING>``. Tables store Spark's JSON
form, which is also accepted. Both are parsed here, without Spark: a dry run starts none.
"""

import json
import re
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa

from cordwood.errors import ConfigError

OPTION: Final = "value schema"
FIELDS_MAX: Final = 2000  # of one schema, with nested ones
DEPTH_MAX: Final = 32
TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_TEXT_CHARS_MAX: Final = 1 << 20
_PRECISION_MAX: Final = 38

_JSON_NAMES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "timestamp_ntz": pa.timestamp("us"),
}
_NAMES_OF_TYPES: Final = {kind: name for name, kind in _JSON_NAMES.items()}
_DDL_NAMES: Final[dict[str, str]] = {
    **{name: name for name in _JSON_NAMES},
    "tinyint": "byte",
    "smallint": "short",
    "int": "integer",
    "bigint": "long",
    "real": "float",
    "timestamp_ltz": "timestamp",
    "varchar": "string",
    "char": "string",
}
_DECIMAL: Final = re.compile(r"decimal(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?")
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<quoted>`(?:[^`]|``)+`)|(?P<text>'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\")"
    r"|(?P<word>[^\s,:<>()`'\"]+)|(?P<mark>[,:<>()]))"
)


def struct_of(fields: "list[pa.Field[Any]]") -> pa.StructType:
    return pa.struct(fields)


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list as Spark and Parquet name it."""
    return pa.list_(pa.field("element", kind))


def parse_schema(text: str, *, option: str = OPTION) -> pa.StructType:
    """Parse DDL or Spark's JSON form. Raises `ConfigError`."""
    if len(text) > _TEXT_CHARS_MAX:
        raise ConfigError(option, f"{text[:40]}…", f"is longer than {_TEXT_CHARS_MAX} characters")
    try:
        if text.lstrip().startswith("{"):
            found = _from_json(json.loads(text), 0)
        else:
            found = _Ddl(text).schema()
        _check_size(found)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(option, text, f"is not a schema: {_told(error)}") from error
    if not isinstance(found, pa.StructType) or not found.num_fields:
        raise ConfigError(option, text, "must name the fields of an object")
    return found


def _told(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


def render_schema(kind: pa.DataType) -> str:
    """Spark's JSON form, the same text for the same type."""
    return json.dumps(_to_json(kind), sort_keys=True)


def count_fields(kind: pa.DataType) -> int:
    """The number of fields, with nested ones."""
    return sum(1 + count_fields(child) for child in children_of(kind))


def children_of(kind: pa.DataType) -> Iterator[pa.DataType]:
    """The types directly inside a type."""
    if pa.types.is_struct(kind):
        yield from (child.type for child in fields_of(kind))
    elif pa.types.is_list(kind):
        yield kind.value_type
    elif pa.types.is_map(kind):
        yield kind.key_type
        yield kind.item_type


def fields_of(kind: Any) -> "list[pa.Field[Any]]":
    """The fields of a struct."""
    return [kind.field(number) for number in range(kind.num_fields)]


def _check_size(kind: pa.DataType, depth: int = 0) -> None:
    if depth > DEPTH_MAX:
        raise ValueError(f"it is nested more than {DEPTH_MAX} deep")
    if depth == 0 and count_fields(kind) > FIELDS_MAX:
        raise ValueError(f"it has more than {FIELDS_MAX} fields")
    if pa.types.is_struct(kind):
        names = [child.name.lower() for child in fields_of(kind)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"the field {twice[0]} is there twice")
    for child in children_of(kind):
        _check_size(child, depth + 1)


# --- Spark's JSON form ---------------------------------------------------------------------------


def _from_json(found: Any, depth: int) -> pa.DataType:
    if depth > DEPTH_MAX:
        raise ValueError(f"it is nested more than {DEPTH_MAX} deep")
    if isinstance(found, str):
        return _simple(found)
    match found["type"]:
        case "struct":
            return struct_of(
                [
                    pa.field(
                        str(field["name"]),
                        _from_json(field["type"], depth + 1),
                        nullable=bool(field.get("nullable", True)),
                    )
                    for field in found["fields"]
                ]
            )
        case "array":
            return list_of(_from_json(found["elementType"], depth + 1))
        case "map":
            keys = _from_json(found["keyType"], depth + 1)
            return pa.map_(keys, _from_json(found["valueType"], depth + 1))
        case other:
            raise ValueError(f"unknown type {other!r}")


def _simple(name: str) -> pa.DataType:
    if name in _JSON_NAMES:
        return _JSON_NAMES[name]
    found = _DECIMAL.fullmatch(name)
    if found is None:
        raise ValueError(f"unknown type {name!r}")
    precision, scale = int(found[1] or 10), int(found[2] or 0)
    if not (1 <= precision <= _PRECISION_MAX and scale <= precision):
        raise ValueError(f"{name} must have a precision of 1 to 38 and a scale within it")
    return pa.decimal128(precision, scale)


def _to_json(kind: Any) -> Any:
    if pa.types.is_struct(kind):
        return {
            "type": "struct",
            "fields": [
                {
                    "name": child.name,
                    "type": _to_json(child.type),
                    "nullable": child.nullable,
                    "metadata": {},
                }
                for child in fields_of(kind)
            ],
        }
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _to_json(kind.value_type), "containsNull": True}
    if pa.types.is_map(kind):
        return {
            "type": "map",
            "keyType": _to_json(kind.key_type),
            "valueType": _to_json(kind.item_type),
            "valueContainsNull": True,
        }
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    return _NAMES_OF_TYPES[kind]


# --- DDL -----------------------------------------------------------------------------------------


class _Ddl:
    """Reads one text. `at` is the next token."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        position = 0
        text = text.rstrip()
        while position < len(text):
            found = _TOKEN.match(text, position)
            if found is None:
                raise ValueError(f"unexpected {text[position:][:20]!r}")
            kind = str(found.lastgroup)
            self._tokens.append((kind, found[kind]))
            position = found.end()
        self._at = 0

    def schema(self) -> pa.DataType:
        kind = struct_of(list(self._fields(0)))
        if self._at < len(self._tokens):
            raise ValueError(f"unexpected {self._tokens[self._at][1]!r}")
        return kind

    def _peek(self) -> str:
        return self._tokens[self._at][1] if self._at < len(self._tokens) else ""

    def _take(self) -> tuple[str, str]:
        if self._at >= len(self._tokens):
            raise ValueError("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _expect(self, mark: str) -> None:
        _, found = self._take()
        if found != mark:
            raise ValueError(f"expected {mark!r}, found {found!r}")

    def _fields(self, depth: int) -> "Iterator[pa.Field[Any]]":
        while True:
            kind, name = self._take()
            if kind == "quoted":
                name = name[1:-1].replace("``", "`")
            elif kind != "word":
                raise ValueError(f"expected the name of a field, found {name!r}")
            if self._peek() == ":":
                self._take()
            found = self._type(depth)
            yield pa.field(name, found, nullable=not self._is_required())
            self._skip_comment()
            if self._peek() != ",":
                return
            self._take()

    def _is_required(self) -> bool:
        if self._peek().lower() != "not":
            return False
        self._take()
        if self._take()[1].lower() != "null":
            raise ValueError("expected NOT NULL")
        return True

    def _skip_comment(self) -> None:
        if self._peek().lower() == "comment":
            self._take()
            if self._take()[0] != "text":
                raise ValueError("expected a text after COMMENT")

    def _type(self, depth: int) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise ValueError(f"it is nested more than {DEPTH_MAX} deep")
        _, word = self._take()
        name = word.lower()
        match name:
            case "struct":
                self._expect("<")
                fields = list(self._fields(depth + 1))
                self._expect(">")
                return struct_of(fields)
            case "array":
                self._expect("<")
                item = self._type(depth + 1)
                self._expect(">")
                return list_of(item)
            case "map":
                self._expect("<")
                key = self._type(depth + 1)
                self._expect(",")
                value = self._type(depth + 1)
                self._expect(">")
                return pa.map_(key, value)
            case "decimal" | "dec" | "numeric":
                return _simple(f"decimal{self._parameters()}")
            case _:
                if name not in _DDL_NAMES:
                    raise ValueError(f"unknown type {word!r}")
                if name in {"varchar", "char"}:
                    self._parameters()
                return _JSON_NAMES[_DDL_NAMES[name]]

    def _parameters(self) -> str:
        if self._peek() != "(":
            return ""
        parts = []
        while True:
            _, part = self._take()
            parts.append(part)
            if part == ")":
                return "".join(parts)
