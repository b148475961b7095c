"""Message schemas as values, parsed from the texts in `schemas`."""

import re
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from typing import Final
from uuid import UUID

from cordwood.protocol.api_catalog import KNOWN_APIS
from cordwood.protocol.schemas import MESSAGE_SCHEMAS
from cordwood.value_class import dataclass

Default = int | float | bool | str | bytes | UUID | tuple[()] | None

NIL_UUID: Final = UUID(int=0)
_INDENT: Final = 2
_LINE: Final = re.compile(
    r"(?P<name>\w+) (?P<array>\[\])?(?P<type>\{\}|\w*)(?P<nullable>\?[\d+-]*)?"
    r"(?: (?P<versions>\d+(?:\+|-\d+)?))?(?: tag (?P<tag>\d+))?(?: = (?P<default>\S+))?"
)
_IMPLICIT_DEFAULTS: Final[dict[str, Default]] = {
    "bool": False,
    "int8": 0,
    "int16": 0,
    "uint16": 0,
    "int32": 0,
    "int64": 0,
    "float64": 0.0,
    "string": "",
    "bytes": b"",
    "uuid": NIL_UUID,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldSchema:
    """One field in all its versions.

    `type` is the name of a primitive, or empty for a structure, which has `fields`. `default` is
    the value in versions that lack the field. For a structure that cannot be null it is None
    here: the default is a structure with the defaults of its fields.
    """

    name: str
    type: str
    is_array: bool
    versions: range
    nullable_versions: range
    tag: int | None
    default: Default
    fields: tuple["FieldSchema", ...] = ()

    def default_in(self, version: int) -> Default:
        """The value of a field that the sender of this version left out."""
        if self.default is None and version not in self.nullable_versions:
            return () if self.is_array else _IMPLICIT_DEFAULTS.get(self.type)
        return self.default


@dataclass(frozen=True, slots=True)
class MessageSchema:
    """The fields of an API's request and of its response."""

    request: tuple[FieldSchema, ...]
    response: tuple[FieldSchema, ...]


@dataclass(frozen=True, slots=True)
class _Line:
    depth: int
    text: str


@cache
def message_schema(api_key: int) -> MessageSchema:
    """The schema of an API's messages; `KeyError` for an API without a schema."""
    api = KNOWN_APIS[api_key]
    versions = range(api.min_version, api.max_version + 1)
    parsed = _lines(MESSAGE_SCHEMAS[api_key])
    response_at = parsed.index(_Line(0, "response"))
    assert parsed[0] == _Line(0, "request"), api
    return MessageSchema(
        request=tuple(_fields(parsed[1:response_at], 1, versions)),
        response=tuple(_fields(parsed[response_at + 1 :], 1, versions)),
    )


def structure_schema(text: str) -> tuple[range, tuple[FieldSchema, ...]]:
    """The versions in the first line of `text`, and the fields in the others."""
    first, *parsed = _lines(text)
    oldest, _, newest = first.text.partition("-")
    versions = range(int(oldest), int(newest or oldest) + 1)
    return versions, tuple(_fields(parsed, 0, versions))


def _lines(text: str) -> list[_Line]:
    lines = [line for line in text.splitlines() if line.strip()]
    margin = len(lines[0]) - len(lines[0].lstrip())
    return [
        _Line((len(line) - len(line.lstrip()) - margin) // _INDENT, line.strip()) for line in lines
    ]


def _fields(lines: list[_Line], depth: int, versions: range) -> Iterator[FieldSchema]:
    starts = [at for at, line in enumerate(lines) if line.depth == depth]
    for start, end in pairwise([*starts, len(lines)]):
        yield _field(lines[start].text, lines[start + 1 : end], depth, versions)


def _field(text: str, below: list[_Line], depth: int, parent: range) -> FieldSchema:
    found = _LINE.fullmatch(text)
    assert found is not None, text
    versions = _versions(found["versions"], parent)
    nullable = found["nullable"]
    type_name = found["type"].removeprefix("{}")
    return FieldSchema(
        name=found["name"],
        type=type_name,
        is_array=found["array"] is not None,
        versions=versions,
        nullable_versions=range(0) if nullable is None else _versions(nullable[1:], versions),
        tag=None if found["tag"] is None else int(found["tag"]),
        default=_default(found),
        fields=tuple(_fields(below, depth + 1, versions)),
    )


def _versions(text: str | None, parent: range) -> range:
    """The part of `parent` that ``3+``, ``1-7`` or ``2`` names."""
    if not text:
        return parent
    first, _, last = text.rstrip("+").partition("-")
    end = parent.stop if text.endswith("+") else int(last or first) + 1
    return range(max(int(first), parent.start), min(end, parent.stop))


def _default(found: re.Match[str]) -> Default:
    text, type_name = found["default"], found["type"]
    if text is not None:
        return text == "true" if type_name == "bool" else int(text)
    if found["nullable"] is not None:
        return None
    if found["array"] is not None:
        return ()
    return _IMPLICIT_DEFAULTS.get(type_name)
