"""Avro object container files in a value, read within limits.

The schema comes with the data and is as hostile as the data. A schema may say that an item takes no
bytes, and the data may say that there are 2**60 of them: so items are counted, not only bytes.
Compressed blocks are not inflated.
"""

import json
import struct
from typing import Any, Final

from cordwood.console.decoding.decoded import DEPTH_MAX, ITEMS_MAX, UndecodableError

MAGIC: Final = b"Obj\x01"

_SYNC_SIZE: Final = 16
_PRIMITIVES: Final = frozenset(
    {"null", "boolean", "int", "long", "float", "double", "bytes", "string"}
)
_SCHEMA_CHARS_MAX: Final = 64 * 1024

Schema = Any  # a text, a list or a dict of JSON


def decode_avro_file(data: bytes) -> list[object]:
    """All objects of an Avro container. Raises `UndecodableError`."""
    if not data.startswith(MAGIC):
        raise UndecodableError("is not an Avro file")
    reader = _Reader(data, len(MAGIC))
    metadata = reader.map_of("string", 0)
    schema = _schema(metadata.get("avro.schema"))
    codec = metadata.get("avro.codec", "null")
    if codec != "null":
        raise UndecodableError(f"its blocks are compressed with {codec}")
    reader.names = _named(schema)
    reader.take(_SYNC_SIZE)
    found: list[object] = []
    while reader.at < len(data):
        count = reader.long()
        reader.long()  # the size of the block
        for _ in range(reader.checked_count(count)):
            found.append(reader.value(schema, 0))
        reader.take(_SYNC_SIZE)
    return found


def _schema(text: object) -> Schema:
    if not isinstance(text, str) or len(text) > _SCHEMA_CHARS_MAX:
        raise UndecodableError("it has no schema, or a very large one")
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UndecodableError(f"its schema is not JSON: {error}") from None


def _named(schema: Schema) -> dict[str, Schema]:
    """The named types in a schema, by their short names."""
    found: dict[str, Schema] = {}
    waiting = [schema]
    for _ in range(ITEMS_MAX):
        if not waiting:
            return found
        at = waiting.pop()
        if isinstance(at, list):
            waiting += at
        elif isinstance(at, dict):
            if isinstance(at.get("name"), str):
                found[at["name"].rpartition(".")[2]] = at
            waiting += [at[key] for key in ("type", "items", "values") if key in at]
            fields = at.get("fields")
            waiting += fields if isinstance(fields, list) else []
    raise UndecodableError("its schema is too large")


class _Reader:
    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._items = 0
        self.at = at
        self.names: dict[str, Schema] = {}

    def take(self, count: int) -> bytes:
        if not 0 <= count <= len(self._data) - self.at:
            raise UndecodableError("Avro ends in the middle of a value")
        taken = self._data[self.at : self.at + count]
        self.at += count
        return taken

    def long(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if not byte & 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
            if shift > 63:
                raise UndecodableError("an Avro number is too long")

    def checked_count(self, count: int) -> int:
        if not 0 <= count <= ITEMS_MAX:
            raise UndecodableError(f"Avro claims {count} items")
        return count

    def value(self, schema: Schema, depth: int) -> object:
        self._items += 1
        if self._items > ITEMS_MAX or depth > DEPTH_MAX:
            raise UndecodableError("Avro has too many or too deep values")
        if isinstance(schema, list):
            branch = self.long()
            if not 0 <= branch < len(schema):
                raise UndecodableError("Avro chooses a branch that its union does not have")
            return self.value(schema[branch], depth + 1)
        if isinstance(schema, dict):
            return self._complex(schema, depth)
        if schema in _PRIMITIVES:
            return self._primitive(schema)
        known = self.names.get(str(schema).rpartition(".")[2])
        if known is None:
            raise UndecodableError(f"Avro has no type {schema!r}")
        return self._complex(known, depth + 1)

    def _complex(self, schema: dict[str, Schema], depth: int) -> object:
        kind = schema.get("type")
        match kind:
            case "record" | "error":
                fields = schema.get("fields")
                if not isinstance(fields, list):
                    raise UndecodableError("an Avro record has no fields")
                return {
                    str(field.get("name")): self.value(field.get("type"), depth + 1)
                    for field in fields
                    if isinstance(field, dict)
                }
            case "enum":
                symbols, index = schema.get("symbols"), self.long()
                if not isinstance(symbols, list) or not 0 <= index < len(symbols):
                    raise UndecodableError("Avro chooses a symbol that its enum does not have")
                return symbols[index]
            case "array":
                return [v for part in self._blocks(schema.get("items"), depth) for v in part]
            case "map":
                return self.map_of(schema.get("values"), depth)
            case "fixed":
                size = schema.get("size")
                return self.take(size if isinstance(size, int) else -1).hex()
            case _:
                return self.value(kind, depth + 1)

    def _blocks(self, items: Schema, depth: int) -> list[list[object]]:
        found: list[list[object]] = []
        while count := self._block_count():
            found.append([self.value(items, depth + 1) for _ in range(count)])
        return found

    def map_of(self, values: Schema, depth: int) -> dict[str, object]:
        found: dict[str, object] = {}
        while count := self._block_count():
            for _ in range(count):
                name = self._text()
                found[name] = self.value(values, depth + 1)
        return found

    def _block_count(self) -> int:
        self._items += 1
        if self._items > ITEMS_MAX:
            raise UndecodableError("Avro has too many values")
        count = self.long()
        if count < 0:
            count = -count
            self.long()  # the size of the block in bytes
        return self.checked_count(count)

    def _text(self) -> str:
        return self.take(self.long()).decode("utf-8", "replace")

    def _primitive(self, kind: str) -> object:
        match kind:
            case "null":
                return None
            case "boolean":
                return self.take(1) != b"\x00"
            case "int" | "long":
                return self.long()
            case "float":
                return struct.unpack("<f", self.take(4))[0]
            case "double":
                return struct.unpack("<d", self.take(8))[0]
            case "bytes":
                return self.take(self.long()).hex()
            case _:
                return self._text()
