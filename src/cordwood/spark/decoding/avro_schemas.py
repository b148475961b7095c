"""Avro schemas: as Arrow types, and as fastavro reads data with them.

A schema may come from a registry, so it is checked: no recursion, which no table can hold; limits
on size and depth; no lists of items without bytes, of which ten bytes can claim a billion.

    int, long, float, double, boolean, string, bytes   the same
    enum, uuid                                         STRING
    fixed, duration                                    BINARY
    record, array, map                                 STRUCT, ARRAY, MAP
    a union with null                                  the other type, nullable
    any other union                                    STRING, with the value as JSON
    decimal, date, timestamp-*, local-timestamp-*      DECIMAL, DATE, TIMESTAMP, TIMESTAMP_NTZ
    time-*                                             the number
"""

import json
from typing import Any, Final

import pyarrow as pa

from cordwood.errors import ConfigError
from cordwood.spark.decoding.type_text import (
    DEPTH_MAX,
    FIELDS_MAX,
    TIMESTAMP,
    list_of,
    struct_of,
)
from cordwood.value_class import dataclass

_TEXT_CHARS_MAX: Final = 1 << 20
_SIMPLE: Final[dict[str, pa.DataType]] = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
}
_TIMES: Final[dict[str, pa.DataType]] = {
    "timestamp-millis": pa.timestamp("ms", tz="UTC"),
    "timestamp-micros": TIMESTAMP,
    "timestamp-nanos": pa.timestamp("ns", tz="UTC"),
    "local-timestamp-millis": pa.timestamp("ms"),
    "local-timestamp-micros": pa.timestamp("us"),
    "local-timestamp-nanos": pa.timestamp("ns"),
}
_NUMBERS: Final = ("int", "long", "float", "double")
_PRECISION_MAX: Final = 38


@dataclass(frozen=True, slots=True, kw_only=True)
class AvroSchema:
    """A checked schema.

    parsed  for fastavro; numbers stand for times, which Arrow turns into times
    wire    the type of what fastavro returns, with the units of this schema
    type    the type of a table's column
    unions  paths of fields whose values become JSON
    """

    parsed: Any
    wire: pa.DataType
    type: pa.DataType
    unions: tuple[tuple[str, ...], ...]


def parse_avro(text: str, *, option: str = "value schema", references: Any = ()) -> AvroSchema:
    """Parse a schema; `references` are the texts of schemas that it refers to, in order."""
    fastavro = _fastavro()
    try:
        if len(text) > _TEXT_CHARS_MAX:
            raise ValueError(f"it is longer than {_TEXT_CHARS_MAX} characters")
        names: dict[str, Any] = {}
        known: dict[str, Any] = {}
        for other in references:
            _collect(_without_logical(json.loads(other)), "", names)
            fastavro.parse_schema(_without_logical(json.loads(other)), named_schemas=known)
        plain = _without_logical(json.loads(text))
        _collect(plain, "", names)
        walk = _Walk(names)
        wire = walk.type_of(plain, "", (), 0)
        if not pa.types.is_struct(wire):
            raise ValueError("it must be a record")
        if not _takes_bytes(wire):
            raise ValueError("its records take no bytes")
        parsed = fastavro.parse_schema(plain, named_schemas=known)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ConfigError(option, _short(text), f"is not an Avro schema: {error}") from error
    except fastavro.schema.SchemaParseException as error:
        raise ConfigError(option, _short(text), f"is not an Avro schema: {error}") from error
    return AvroSchema(parsed=parsed, wire=wire, type=_column_type(wire), unions=tuple(walk.unions))


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:79]}…"


def _fastavro() -> Any:
    try:
        import fastavro
        import fastavro.schema
    except ImportError as error:
        raise ConfigError(
            "format", "avro", "needs the package fastavro: pip install 'cordwood[schemas]'"
        ) from error
    return fastavro


def _without_logical(schema: Any, depth: int = 0) -> Any:
    """The schema with the logical types that we convert ourselves under another name."""
    if depth > 4 * DEPTH_MAX:
        raise ValueError("it is nested too deep")
    if isinstance(schema, list):
        return [_without_logical(branch, depth + 1) for branch in schema]
    if not isinstance(schema, dict):
        return schema
    found = {
        key: _without_logical(value, depth + 1)
        if key in {"type", "items", "values", "fields"}
        else value
        for key, value in schema.items()
    }
    kind = found.get("logicalType")
    if kind is not None and not (kind == "decimal" and _is_decimal(found)):
        found["cordwoodLogicalType"] = found.pop("logicalType")
    return found


def _is_decimal(schema: Any) -> bool:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    is_number = isinstance(precision, int) and isinstance(scale, int)
    return is_number and 0 <= scale <= precision <= _PRECISION_MAX


def _collect(schema: Any, namespace: str, names: dict[str, Any], depth: int = 0) -> None:
    """Note the named types in a schema, by full and by short name."""
    if depth > 4 * DEPTH_MAX:
        raise ValueError("it is nested too deep")
    if isinstance(schema, list):
        for branch in schema:
            _collect(branch, namespace, names, depth + 1)
    elif isinstance(schema, dict):
        name = schema.get("name")
        if isinstance(name, str) and isinstance(schema.get("type"), str):
            space, _, short = name.rpartition(".")
            namespace = space or schema.get("namespace", namespace) or ""
            names[f"{namespace}.{short}" if namespace else short] = schema
            names.setdefault(short, schema)
        for key in ("type", "items", "values"):
            if key in schema:
                _collect(schema[key], namespace, names, depth + 1)
        for field in schema.get("fields", ()):
            _collect(field["type"], namespace, names, depth + 1)


class _Walk:
    """Builds the type of one schema, and notes its unions."""

    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names
        self._fields = 0
        self.unions: list[tuple[str, ...]] = []

    def type_of(
        self, schema: Any, namespace: str, path: tuple[str, ...], depth: int
    ) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise ValueError(f"it is recursive, or nested more than {DEPTH_MAX} deep")
        if isinstance(schema, str):
            if schema in _SIMPLE:
                return _SIMPLE[schema]
            full = f"{namespace}.{schema}" if namespace and "." not in schema else schema
            named = self._names.get(full, self._names.get(schema))
            if named is None:
                raise ValueError(f"unknown type {schema!r}")
            return self.type_of(named, namespace, path, depth + 1)
        if isinstance(schema, list):
            return self._union(schema, namespace, path, depth)
        return self._complex(schema, namespace, path, depth)

    def _union(
        self, branches: list[Any], namespace: str, path: tuple[str, ...], depth: int
    ) -> pa.DataType:
        others = [branch for branch in branches if branch != "null"]
        if len(others) == 1:
            return self.type_of(others[0], namespace, path, depth + 1)
        if others and all(branch in _NUMBERS for branch in others):
            is_whole = all(branch in {"int", "long"} for branch in others)
            return pa.int64() if is_whole else pa.float64()
        for branch in others:
            self.type_of(branch, namespace, path, depth + 1)  # to refuse what cannot be read
        self.unions.append(path)
        return pa.string()

    def _complex(
        self, schema: dict[str, Any], namespace: str, path: tuple[str, ...], depth: int
    ) -> pa.DataType:
        kind = schema["type"]
        if kind == "decimal" or (schema.get("logicalType") == "decimal" and _is_decimal(schema)):
            return pa.decimal128(schema["precision"], schema.get("scale", 0))
        logical = schema.get("cordwoodLogicalType")
        match kind:
            case "record" | "error":
                space = schema["name"].rpartition(".")[0] or schema.get("namespace", namespace)
                return self._record(schema, space or "", path, depth)
            case "enum":
                return pa.string()
            case "fixed":
                if not schema["size"]:
                    raise ValueError("it has a fixed type without bytes")
                return pa.binary()
            case "array":
                item = self.type_of(schema["items"], namespace, (*path, "[]"), depth + 1)
                if not _takes_bytes(item):
                    raise ValueError("it has a list of items that take no bytes")
                return list_of(_non_null(item))
            case "map":
                value = self.type_of(schema["values"], namespace, (*path, "{}"), depth + 1)
                return pa.map_(pa.string(), _non_null(value))
            case "int" if logical == "date":
                return pa.date32()
            case "long" if logical in _TIMES:
                return _TIMES[str(logical)]
            case _:
                return self.type_of(kind, namespace, path, depth + 1)

    def _record(
        self, schema: dict[str, Any], namespace: str, path: tuple[str, ...], depth: int
    ) -> pa.DataType:
        fields = []
        for field in schema["fields"]:
            self._fields += 1
            if self._fields > FIELDS_MAX:
                raise ValueError(f"it has more than {FIELDS_MAX} fields")
            inside = (*path, field["name"])
            kind = self.type_of(field["type"], namespace, inside, depth + 1)
            fields.append(pa.field(field["name"], _non_null(kind)))
        return struct_of(fields)


def _non_null(kind: pa.DataType) -> pa.DataType:
    """A type that tables have: what is always null is a text."""
    return pa.string() if pa.types.is_null(kind) else kind


def _takes_bytes(kind: Any) -> bool:
    if pa.types.is_struct(kind):
        return any(_takes_bytes(kind.field(n).type) for n in range(kind.num_fields))
    return not pa.types.is_null(kind)


def _column_type(kind: Any) -> pa.DataType:
    """Times in microseconds, as tables have them."""
    if pa.types.is_struct(kind):
        fields = [kind.field(number) for number in range(kind.num_fields)]
        return struct_of([pa.field(f.name, _column_type(f.type)) for f in fields])
    if pa.types.is_list(kind):
        return list_of(_column_type(kind.value_type))
    if pa.types.is_map(kind):
        return pa.map_(pa.string(), _column_type(kind.item_type))
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    return kind  # type: ignore[no-any-return]
