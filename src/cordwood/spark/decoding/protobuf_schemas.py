"""Protobuf schemas: `.proto` files compiled to descriptors, and messages as Arrow types.

`protoc`, from the package grpcio-tools, compiles in a process of its own: the text may come from a
registry. Descriptors that `protoc --descriptor_set_out` wrote are accepted as well.

    int32, sint32, sfixed32, uint32 …      INT; uint32 is BIGINT, uint64 is DECIMAL(20,0)
    enum                                   STRING, the name, or the number if it has none
    message, repeated, map                 STRUCT, ARRAY, MAP
    Timestamp                              TIMESTAMP; Duration is BIGINT, in microseconds
    wrappers (StringValue …)               the wrapped type, nullable
    Struct, Value, ListValue, Any          STRING, as JSON
"""

import base64
import os
import subprocess
import sys
import tempfile
from pathlib import PurePosixPath
from typing import Any, Final

import pyarrow as pa

from cordwood.errors import ConfigError
from cordwood.quantities import MIB
from cordwood.spark.decoding.type_text import (
    DEPTH_MAX,
    FIELDS_MAX,
    TIMESTAMP,
    list_of,
    struct_of,
)

_COMPILER_S: Final = 60.0
_TEXT_BYTES_MAX: Final = 4 * MIB
_MAIN: Final = "cordwood_value.proto"
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)
AS_JSON: Final = frozenset(
    f"google.protobuf.{name}" for name in ("Struct", "Value", "ListValue", "Any", "FieldMask")
)
TIMESTAMP_NAME: Final = "google.protobuf.Timestamp"
DURATION_NAME: Final = "google.protobuf.Duration"


def compile_proto(
    text: str, references: "tuple[tuple[str, str], ...]" = (), *, option: str = "value schema"
) -> str:
    """A `.proto` text and the files it imports, as a descriptor set in base64."""
    try:
        import grpc_tools
    except ImportError as error:
        raise ConfigError(
            "format", "protobuf", "needs the package grpcio-tools: pip install 'cordwood[schemas]'"
        ) from error
    well_known = os.path.join(os.path.dirname(grpc_tools.__file__), "_proto")
    with tempfile.TemporaryDirectory(prefix="cordwood-proto-") as directory:
        for name, content in (*references, (_MAIN, text)):
            _write(directory, name, content, option)
        output = os.path.join(directory, ".descriptors")
        command = [
            sys.executable, "-m", "grpc_tools.protoc", f"--proto_path={directory}",
            f"--proto_path={well_known}", f"--descriptor_set_out={output}", "--include_imports",
            _MAIN,
        ]  # fmt: skip
        try:
            done = subprocess.run(
                command, cwd=directory, capture_output=True, timeout=_COMPILER_S, check=False
            )
        except subprocess.TimeoutExpired as error:
            raise ConfigError(option, text[:80], "takes too long to compile") from error
        if done.returncode:
            said = done.stderr.decode(errors="replace").strip()[:500]
            raise ConfigError(option, text[:80], f"is not a Protobuf schema: {said}")
        with open(output, "rb") as file:
            return base64.b64encode(file.read()).decode()


def _write(directory: str, name: str, content: str, option: str) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name or len(name) > 512:
        raise ConfigError(option, name, "is not the name of an imported file")
    if len(content) > _TEXT_BYTES_MAX:
        raise ConfigError(option, name, f"is larger than {_TEXT_BYTES_MAX} bytes")
    target = os.path.join(directory, *path.parts)
    os.makedirs(os.path.dirname(target), exist_ok=True)
    with open(target, "w", encoding="utf-8") as file:
        file.write(content)


class MessageTypes:
    """The messages of one descriptor set. For one thread."""

    def __init__(self, descriptors: str, *, option: str = "value schema") -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
            from google.protobuf.message import DecodeError
        except ImportError as error:
            raise ConfigError(
                "format", "protobuf", "needs the package protobuf: pip install 'cordwood[schemas]'"
            ) from error
        self._option = option
        self._pool = descriptor_pool.DescriptorPool()
        try:
            files = descriptor_pb2.FileDescriptorSet.FromString(base64.b64decode(descriptors))
            for file in files.file:
                self._pool.AddSerializedFile(file.SerializeToString())
        except (DecodeError, ValueError, TypeError) as error:
            raise ConfigError(option, "descriptors", f"cannot be read: {error}") from error
        if not files.file:
            raise ConfigError(option, "descriptors", "are empty")
        self._main: Any = self._pool.FindFileByName(files.file[-1].name)
        self._order = [message.name for message in files.file[-1].message_type]
        self._file = files.file[-1]

    def named(self, name: str | None) -> Any:
        """The message with that full name, or the only one of the file."""
        if name is None:
            if len(self._order) != 1:
                raise ConfigError(self._option, self._known(), "name one of these messages")
            return self._main.message_types_by_name[self._order[0]]
        try:
            return self._pool.FindMessageTypeByName(name)
        except KeyError:
            rule = f"is not a message of this schema; it has {self._known()}"
            raise ConfigError(self._option, name, rule) from None

    def _known(self) -> str:
        """The full names of the file's messages."""
        package = f"{self._file.package}." if self._file.package else ""
        return ", ".join(f"{package}{name}" for name in self._order)

    def at(self, indexes: tuple[int, ...]) -> Any:
        """The message at a path of indexes; None if there is none."""
        found: Any = self._file
        names = [self._file.package] if self._file.package else []
        for depth, index in enumerate(indexes):
            inside = found.nested_type if depth else found.message_type
            if not 0 <= index < len(inside):
                return None
            found = inside[index]
            names.append(found.name)
        return self._pool.FindMessageTypeByName(".".join(names))


def message_type(descriptor: Any, *, option: str = "value schema") -> pa.DataType:
    """The type of a message. Raises `ConfigError` for one that no table can hold."""
    counted = [0]

    def of_message(found: Any, depth: int) -> pa.DataType:
        if depth > DEPTH_MAX:
            raise ConfigError(
                option, descriptor.full_name, f"is recursive, or nested more than {DEPTH_MAX} deep"
            )
        fields = []
        for field in found.fields:
            counted[0] += 1
            if counted[0] > FIELDS_MAX:
                raise ConfigError(
                    option, descriptor.full_name, f"has more than {FIELDS_MAX} fields"
                )
            fields.append(pa.field(field.name, of_field(field, depth)))
        if not fields:
            fields = [pa.field("_empty", pa.bool_())]  # no file can hold a struct without fields
        return struct_of(fields)

    def of_field(field: Any, depth: int) -> pa.DataType:
        if is_map(field):
            entry = field.message_type.fields_by_name
            return pa.map_(of_one(entry["key"], depth + 1), of_one(entry["value"], depth + 1))
        kind = of_one(field, depth + 1)
        return list_of(kind) if is_repeated(field) else kind

    def of_one(field: Any, depth: int) -> pa.DataType:
        if field.message_type is None:
            return _SCALARS[field.cpp_type] if field.type != field.TYPE_BYTES else pa.binary()
        name = field.message_type.full_name
        if name == TIMESTAMP_NAME:
            return TIMESTAMP
        if name == DURATION_NAME:
            return pa.int64()
        if name in WRAPPERS:
            return of_one(field.message_type.fields_by_name["value"], depth)
        if name in AS_JSON:
            return pa.string()
        return of_message(field.message_type, depth)

    return of_message(descriptor, 0)


def is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


def is_repeated(field: Any) -> bool:
    return bool(field.is_repeated if hasattr(field, "is_repeated") else field.label == 3)


# By `FieldDescriptor.cpp_type`
_SCALARS: Final[dict[int, pa.DataType]] = {
    1: pa.int32(),
    2: pa.int64(),
    3: pa.int64(),  # uint32
    4: pa.decimal128(20, 0),  # uint64
    5: pa.float64(),
    6: pa.float32(),
    7: pa.bool_(),
    8: pa.string(),  # enum
    9: pa.string(),
}
