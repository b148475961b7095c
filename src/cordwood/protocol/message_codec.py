"""Reading and writing structures by a plan made once for each message and version.

A plan is a list of small functions, one for each field in the order of the wire, so no schema is
consulted while a message is read. Whatever the bytes are, reading raises nothing but
`FormatError`, and allocates in proportion to the size of the message, up to `ITEMS_MAX` items.
"""

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Any, ClassVar, Final

from cordwood.errors import FormatError, LimitExceededError
from cordwood.protocol.message_schema import NIL_UUID, FieldSchema
from cordwood.protocol.wire_values import (
    FLOAT64,
    INT16,
    INT32,
    INT64,
    check_items_fit,
    encode_count,
    encode_string,
    encode_varint,
    read_exactly,
    read_float64,
    read_int16,
    read_int32,
    read_int64,
    read_size,
    read_string,
    read_tag_count,
    read_uuid,
    read_varint,
)

# The most array items in one message. An item of a byte or two becomes an object of a hundred
# bytes, so the size of the frame alone does not bound the memory.
ITEMS_MAX: Final = 1_000_000

_INT8: Final = struct.Struct(">b")
_UINT16: Final = struct.Struct(">H")
_NO_TAGS: Final = 0
_BYTES_MIN: Final = {
    "bool": 1,
    "int8": 1,
    "int16": 2,
    "uint16": 2,
    "int32": 4,
    "int64": 8,
    "float64": 8,
    "uuid": 16,
}
_PREFIX_BYTES: Final = {"string": 2, "bytes": 4}  # of their size, in versions not flexible
_NULL_STRUCT: Final = -1
_PRESENT_STRUCT: Final = 1


if TYPE_CHECKING:
    _Values = object  # a tuple's own methods would hide fields such as `count`
else:
    _Values = tuple


class Fields(_Values):
    """A structure that was read: its fields are attributes. Immutable, compares by value.

    It has every field that the structure has in any version. Fields that the present version
    lacks have their default.
    """

    __slots__ = ()
    names: ClassVar[tuple[str, ...]] = ()

    if TYPE_CHECKING:

        def __init__(self, values: Sequence[Any]) -> None: ...
        def __getattr__(self, name: str) -> Any: ...
        def __iter__(self) -> Iterator[Any]: ...

    def __repr__(self) -> str:
        inside = ", ".join(f"{n}={v!r}" for n, v in zip(self.names, self, strict=True))
        return f"Fields({inside})"


class _Input:
    """A message and how far it has been read. Owned by one call of `StructPlan.decode`."""

    __slots__ = ("_items_max", "data", "items_left", "position")

    def __init__(self, data: memoryview, items_max: int) -> None:
        self.data = data
        self.position = 0
        self._items_max = items_max
        self.items_left = items_max

    def take_items(self, count: int) -> None:
        self.items_left -= count
        if self.items_left < 0:
            limit = self._items_max
            raise LimitExceededError(
                "number of items", size=limit - self.items_left, limit=limit, position=self.position
            )


_Read = Callable[[_Input], Any]
_Write = Callable[[bytearray, Any], None]


class StructPlan:
    """How to read and write one structure in one version."""

    def __init__(self, fields: Sequence[FieldSchema], version: int, *, is_flexible: bool) -> None:
        self._is_flexible = is_flexible
        self._known = frozenset(field.name for field in fields)
        self._defaults = [_default(field, version, is_flexible=is_flexible) for field in fields]
        self._make = _fields_class(tuple(field.name for field in fields))
        self._readers: list[tuple[int, _Read]] = []
        self._writers: list[tuple[str, Any, _Write]] = []
        self._tag_readers: dict[int, tuple[int, _Read]] = {}
        self._tag_writers: list[tuple[int, str, Callable[[Any], bool], _Write]] = []
        for at, field in enumerate(fields):
            if version not in field.versions:
                continue
            read, write = _field_plan(field, version, is_flexible=is_flexible)
            if field.tag is None:
                self._readers.append((at, read))
                self._writers.append((field.name, field.default_in(version), write))
            else:
                self._tag_readers[field.tag] = (at, read)
                self._tag_writers.append((field.tag, field.name, _default_test(field), write))
        self._tag_writers.sort(key=itemgetter(0))

    def decode(self, data: bytes | memoryview, items_max: int = ITEMS_MAX) -> Fields:
        """The structure that `data` begins with; anything else is a `FormatError`.

        Bytes behind it are ignored, as Kafka does: librdkafka asks for the metadata of all topics
        with an array size of four bytes instead of one, and so sends three too many.
        """
        return self.read(_Input(memoryview(data), items_max))

    def read(self, source: _Input) -> Fields:
        values = self._defaults.copy()
        for at, read in self._readers:
            values[at] = read(source)
        if self._is_flexible:
            self._read_tags(source, values)
        return self._make(values)

    def _read_tags(self, source: _Input, values: list[Any]) -> None:
        data = source.data
        if source.position < len(data) and data[source.position] == _NO_TAGS:
            source.position += 1
            return
        count, source.position = read_tag_count(data, source.position)
        source.take_items(count)
        for _ in range(count):
            tag, position = read_varint(data, source.position)
            size, source.position = read_varint(data, position)
            _, end = read_exactly(data, source.position, size, "tagged field")
            if tag in self._tag_readers:
                at, read = self._tag_readers[tag]
                values[at] = read(source)
                if source.position != end:
                    raise FormatError(f"tagged field {tag} is not {size} bytes", position=end)
            source.position = end

    def write(self, out: bytearray, value: Mapping[str, Any]) -> None:
        """Append the structure. A name that no version has is a bug of ours, and a `KeyError`."""
        if not value.keys() <= self._known:
            unknown = sorted(value.keys() - self._known)
            raise KeyError(f"unknown field {', '.join(unknown)}; known are {sorted(self._known)}")
        name = ""
        try:
            for name, default, write in self._writers:
                write(out, value.get(name, default))
            if self._tag_writers:
                self._write_tags(out, value)
            elif self._is_flexible:
                out.append(_NO_TAGS)
        except Exception as error:
            error.add_note(f"in field {name}")
            raise

    def _write_tags(self, out: bytearray, value: Mapping[str, Any]) -> None:
        tagged = [
            (tag, value[name], write)
            for tag, name, is_default, write in self._tag_writers
            if name in value and not is_default(value[name])
        ]
        out += encode_varint(len(tagged))
        for tag, item, write in tagged:
            body = bytearray()
            write(body, item)
            out += encode_varint(tag) + encode_varint(len(body))
            out += body


def _equal(value: Any, default: Any) -> bool:
    return len(value) == 0 if default == () else bool(value == default)


def _default_test(field: FieldSchema) -> Callable[[Any], bool]:
    """Whether a value is the field's default: such a tagged field is left out, as Kafka does."""
    if field.type or field.is_array or field.nullable_versions:
        return lambda value: _equal(value, field.default)
    tests = [(inner.name, inner.default, _default_test(inner)) for inner in field.fields]

    def has_defaults(value: Mapping[str, Any]) -> bool:
        return all(test(value.get(name, default)) for name, default, test in tests)

    return has_defaults


def _fields_class(names: tuple[str, ...]) -> type[Fields]:
    attributes: dict[str, Any] = {"__slots__": (), "names": names}
    for at, name in enumerate(names):
        attributes[name] = property(itemgetter(at))
    return type("Fields", (Fields,), attributes)


def _default(field: FieldSchema, version: int, *, is_flexible: bool) -> Any:
    if field.type or field.is_array or field.nullable_versions:
        return field.default
    plan = StructPlan(field.fields, version, is_flexible=is_flexible)
    return plan._make(plan._defaults)


def _field_plan(field: FieldSchema, version: int, *, is_flexible: bool) -> tuple[_Read, _Write]:
    is_nullable = version in field.nullable_versions
    if field.is_array and field.type == "int32":
        return _numbers(is_flexible=is_flexible, is_nullable=is_nullable)
    if field.is_array:
        # An array's items are never null; the array itself may be.
        read, write = (
            _PRIMITIVES[field.type](is_flexible, False)
            if field.type
            else _struct(field, version, is_flexible=is_flexible, is_nullable=False)
        )
        return _array(
            read,
            write,
            is_flexible=is_flexible,
            is_nullable=is_nullable,
            item_bytes_min=_item_bytes_min(field, version, is_flexible=is_flexible),
        )
    if field.type:
        return _PRIMITIVES[field.type](is_flexible, is_nullable)
    return _struct(field, version, is_flexible=is_flexible, is_nullable=is_nullable)


def _struct(
    field: FieldSchema, version: int, *, is_flexible: bool, is_nullable: bool
) -> tuple[_Read, _Write]:
    plan = StructPlan(field.fields, version, is_flexible=is_flexible)
    if not is_nullable:
        return plan.read, lambda out, value: plan.write(out, {} if value is None else value)

    def read(source: _Input) -> Fields | None:
        marker, source.position = _read_int8(source.data, source.position)
        return None if marker < 0 else plan.read(source)

    def write(out: bytearray, value: Mapping[str, Any] | None) -> None:
        out += _INT8.pack(_NULL_STRUCT if value is None else _PRESENT_STRUCT)
        if value is not None:
            plan.write(out, value)

    return read, write


def _numbers(*, is_flexible: bool, is_nullable: bool) -> tuple[_Read, _Write]:
    """An array of int32, such as broker ids or partitions: packed and unpacked in one call."""
    read_others, write_others = _array(
        *_PRIMITIVES["int32"](is_flexible, False),
        is_flexible=is_flexible,
        is_nullable=is_nullable,
        item_bytes_min=INT32.size,
    )

    def read(source: _Input) -> tuple[int, ...] | None:
        start = source.position
        count, position = read_size(source.data, start, is_flexible=is_flexible)
        if count <= 0:
            return read_others(source)  # type: ignore[no-any-return]
        check_items_fit(count, INT32.size, source.data, position)
        source.take_items(count)
        source.position = position + count * INT32.size
        return struct.unpack_from(f">{count}i", source.data, position)

    def write(out: bytearray, value: Sequence[int] | None) -> None:
        if not value:
            write_others(out, value)
            return
        out += encode_count(len(value), is_flexible=is_flexible)
        out += struct.pack(f">{len(value)}i", *value)

    return read, write


def _item_bytes_min(field: FieldSchema, version: int, *, is_flexible: bool) -> int:
    """The fewest bytes of one value of the field, as an item of its array or by itself."""
    if field.type:
        return _BYTES_MIN.get(field.type) or (1 if is_flexible else _PREFIX_BYTES[field.type])
    size = 1 if is_flexible else 0  # tagged fields
    for inner in field.fields:
        if version not in inner.versions or inner.tag is not None:
            continue
        if inner.is_array:
            size += 1 if is_flexible else INT32.size
        elif not inner.type and version in inner.nullable_versions:
            size += 1
        else:
            size += _item_bytes_min(inner, version, is_flexible=is_flexible)
    return max(size, 1)


def _array(
    read_item: _Read,
    write_item: _Write,
    *,
    is_flexible: bool,
    is_nullable: bool,
    item_bytes_min: int,
) -> tuple[_Read, _Write]:
    def read(source: _Input) -> tuple[Any, ...] | None:
        start = source.position
        count, source.position = read_size(source.data, start, is_flexible=is_flexible)
        if count < 0:
            if not is_nullable:
                raise FormatError("null where an array is needed", position=start)
            return None
        check_items_fit(count, item_bytes_min, source.data, source.position)
        source.take_items(count)
        return tuple([read_item(source) for _ in range(count)])

    def write(out: bytearray, value: Sequence[Any] | None) -> None:
        if value is None:
            if not is_nullable:
                raise ValueError("must be an array, not None")
            out += encode_count(-1, is_flexible=is_flexible)
            return
        out += encode_count(len(value), is_flexible=is_flexible)
        for item in value:
            write_item(out, item)

    return read, write


def _read_int8(data: memoryview, position: int) -> tuple[int, int]:
    raw, end = read_exactly(data, position, 1, "byte")
    return _INT8.unpack(raw)[0], end


def _read_uint16(data: memoryview, position: int) -> tuple[int, int]:
    raw, end = read_exactly(data, position, _UINT16.size, "number")
    return _UINT16.unpack(raw)[0], end


def _read_bool(data: memoryview, position: int) -> tuple[bool, int]:
    raw, end = read_exactly(data, position, 1, "boolean")
    return raw[0] != 0, end


def _fixed(
    read_value: Callable[[memoryview, int], tuple[Any, int]], pack: Callable[[Any], bytes]
) -> Callable[[bool, bool], tuple[_Read, _Write]]:
    """A primitive that is the same in flexible versions, and never null."""

    def read(source: _Input) -> Any:
        value, source.position = read_value(source.data, source.position)
        return value

    def write(out: bytearray, value: Any) -> None:
        out += pack(value)

    return lambda is_flexible, is_nullable: (read, write)


def _string(is_flexible: bool, is_nullable: bool) -> tuple[_Read, _Write]:
    def read(source: _Input) -> str | None:
        start = source.position
        text, source.position = read_string(source.data, start, is_flexible=is_flexible)
        if text is None and not is_nullable:
            raise FormatError("null where a string is needed", position=start)
        return text

    def write(out: bytearray, value: str | None) -> None:
        if value is None and not is_nullable:
            raise ValueError("must be a string, not None")
        out += encode_string(value, is_flexible=is_flexible)

    return read, write


def _bytes(is_flexible: bool, is_nullable: bool) -> tuple[_Read, _Write]:
    def read(source: _Input) -> bytes | None:
        start = source.position
        size, position = read_size(source.data, start, is_flexible=is_flexible)
        if size < 0:
            if not is_nullable:
                raise FormatError("null where bytes are needed", position=start)
            source.position = position
            return None
        raw, source.position = read_exactly(source.data, position, size, "bytes")
        return bytes(raw)

    def write(out: bytearray, value: bytes | None) -> None:
        if value is None and not is_nullable:
            raise ValueError("must be bytes, not None")
        out += encode_count(-1 if value is None else len(value), is_flexible=is_flexible)
        out += value or b""

    return read, write


_PRIMITIVES: Final[Mapping[str, Callable[[bool, bool], tuple[_Read, _Write]]]] = {
    "bool": _fixed(_read_bool, lambda value: b"\1" if value else b"\0"),
    "int8": _fixed(_read_int8, _INT8.pack),
    "int16": _fixed(read_int16, INT16.pack),
    "uint16": _fixed(_read_uint16, _UINT16.pack),
    "int32": _fixed(read_int32, INT32.pack),
    "int64": _fixed(read_int64, INT64.pack),
    "float64": _fixed(read_float64, FLOAT64.pack),
    "uuid": _fixed(read_uuid, lambda value: (value or NIL_UUID).bytes),
    "string": _string,
    "bytes": _bytes,
}
