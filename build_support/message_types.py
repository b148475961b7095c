"""Write the types of all messages for the type checker, from the schemas in `protocol/schemas`.

Each ``X_messages.py`` gets a stub beside it with the types of its messages. They exist for the type
checker alone: import them under `TYPE_CHECKING`. A structure has two types:

    MetadataResponseTopics      as it is read: an object with an attribute for each field
    MetadataResponseTopicsDict  as it is written: a dictionary that may leave out any field

``python build_support/message_types.py`` writes them, ``--check`` fails if one is out of date.
"""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "src"))

from cordwood.protocol.api_catalog import KNOWN_APIS  # noqa: E402
from cordwood.protocol.message_schema import FieldSchema, message_schema  # noqa: E402

LINE_LENGTH = 100
SCHEMAS = ROOT / "src" / "cordwood" / "protocol" / "schemas"
PRIMITIVES = {
    "bool": "bool",
    "int8": "int",
    "int16": "int",
    "uint16": "int",
    "int32": "int",
    "int64": "int",
    "float64": "float",
    "string": "str",
    "bytes": "bytes",
    "uuid": "UUID",
}


def main(arguments: list[str]) -> int:
    is_outdated = False
    for module in sorted(SCHEMAS.glob("*_messages.py")):
        stub = module.with_suffix(".pyi")
        current = stub_of(module.stem)
        if stub.exists() and stub.read_text(encoding="utf-8") == current:
            continue
        if arguments == ["--check"]:
            name = stub.relative_to(ROOT)
            print(f"{name} is out of date: run build_support/message_types.py")
            is_outdated = True
        else:
            stub.write_text(current, encoding="utf-8")
    return int(is_outdated)


def stub_of(module: str) -> str:
    """The stub for the messages of one schema module."""
    schemas = importlib.import_module(f"cordwood.protocol.schemas.{module}").SCHEMAS
    lines: list[str] = []
    for api_key in schemas:
        name, schema = KNOWN_APIS[api_key].name, message_schema(api_key)
        for title, fields in (("Request", schema.request), ("Response", schema.response)):
            names = StructureNames(name + title, fields)
            lines += read_class(names, (), fields)
            lines += written_class(names, (), fields)
    body = "\n".join(lines)
    head = [
        f'"""Types of the messages in `{module}`. Made by build_support/message_types.py."""',
        "",
    ]
    head += ["from collections.abc import Mapping, Sequence", "from typing import Final, TypedDict"]
    head += ["from uuid import UUID", ""] if "UUID" in body else [""]
    head += ["SCHEMAS: Final[Mapping[int, str]]", ""]
    return "\n".join(head) + "\n" + body.strip("\n") + "\n"


Place = tuple[str, ...]  # the names of the fields that lead to a structure


class StructureNames:
    """Names for the structures of a message: its own name, then the name of the field.

    Where several fields have the same name, the names of the fields around them come before it.
    """

    def __init__(self, message: str, fields: Sequence[FieldSchema]) -> None:
        self._message = message
        places = list(structures(fields, ()))
        self._counts = Counter(place[at:] for place in places for at in range(len(place)))

    def of(self, place: Place) -> str:
        short = place
        for at in range(len(place)):
            if self._counts[place[at:]] == 1:
                short = place[at:]
        return self._message + "".join(map(camel, short))


def structures(fields: Sequence[FieldSchema], place: Place) -> Iterator[Place]:
    for field in fields:
        if field.fields:
            yield (*place, field.name)
            yield from structures(field.fields, (*place, field.name))


def read_class(names: StructureNames, place: Place, fields: Sequence[FieldSchema]) -> Iterator[str]:
    for field in fields:
        if field.fields:
            yield from read_class(names, (*place, field.name), field.fields)
    yield f"class {names.of(place)}:"
    for field in fields:
        item = PRIMITIVES[field.type] if field.type else names.of((*place, field.name))
        yield from annotation(field, f"tuple[{item}, ...]" if field.is_array else item)
    yield from [] if fields else ["    pass"]
    yield ""


def written_class(
    names: StructureNames, place: Place, fields: Sequence[FieldSchema]
) -> Iterator[str]:
    for field in fields:
        if field.fields:
            yield from written_class(names, (*place, field.name), field.fields)
    head, tail = f"class {names.of(place)}Dict(", "TypedDict, total=False"
    if len(head + tail) + 2 <= LINE_LENGTH:
        yield f"{head}{tail}):"
    else:
        yield from (head, f"    {tail}", "):")
    for field in fields:
        item = PRIMITIVES[field.type] if field.type else names.of((*place, field.name)) + "Dict"
        yield from annotation(field, f"Sequence[{item}]" if field.is_array else item)
    yield from [] if fields else ["    pass"]
    yield ""


def annotation(field: FieldSchema, kind: str) -> list[str]:
    line = f"    {field.name}: {kind}{' | None' if field.nullable_versions else ''}"
    if len(line) <= LINE_LENGTH:
        return [line]
    outer, inner = line.split("[", 1)
    item, rest = inner.rsplit("]", 1)
    return [f"{outer}[", f"        {item}", f"    ]{rest}"]


def camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
