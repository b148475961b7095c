"""Avro and Protobuf values: with one schema, or each with the id of its schema in a registry.

The schemas are given. A value whose schema is not among them is `missing`, unless the registry was
asked and does not know it: then it does not fit.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from cordwood.errors import ConfigError
from cordwood.spark.decoding.avro_decoder import AvroRecords
from cordwood.spark.decoding.avro_schemas import parse_avro
from cordwood.spark.decoding.decoded_values import (
    DecodedValues,
    MisfitError,
    scattered,
    short_reason,
)
from cordwood.spark.decoding.json_decoder import JsonDecoder
from cordwood.spark.decoding.protobuf_decoder import ProtobufMessages
from cordwood.spark.decoding.protobuf_schemas import MessageTypes
from cordwood.spark.decoding.type_casting import optional
from cordwood.spark.decoding.type_merging import merge_types
from cordwood.spark.decoding.wire_format import (
    FRAME_SIZE,
    NOT_FRAMED,
    message_indexes,
    schema_ids,
)
from cordwood.value_class import dataclass, replace

_PATHS_MAX: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadValues:
    """Values that were read and can become a column.

    numbers  which values they are
    column   makes a column of some of the items. Raises `MisfitError`
    """

    numbers: Sequence[int]
    items: Sequence[Any]
    column: Callable[[Sequence[Any]], "pa.Array[Any]"]


class Reader(Protocol):
    """Reads values that were written with one schema."""

    def read(
        self, values: Sequence[bytes], kind: pa.DataType
    ) -> tuple[list[ReadValues], dict[int, str]]:
        """The values, for columns of `kind`; by their numbers, why some cannot be read."""
        ...


class AvroReader:
    """Values of one Avro schema. Refuses a schema whose fields contradict the table."""

    def __init__(self, text: str, references: Any, kind: pa.DataType, *, at: int) -> None:
        schema = parse_avro(text, references=[content for _, content in references])
        self._records = AvroRecords(schema)
        self._at = at
        self.contradicted = merge_types(kind, schema.type, widens=False).contradicted
        self.type = schema.type

    def read(
        self, values: Sequence[bytes], kind: pa.DataType
    ) -> tuple[list[ReadValues], dict[int, str]]:
        if self.contradicted:
            return [], dict.fromkeys(range(len(values)), _contradiction(self.contradicted))
        records, refused = self._records.records(values, self._at)
        numbers = [n for n in range(len(values)) if n not in refused]
        column = partial(self._records.column, kind=kind)
        return [ReadValues(numbers=numbers, items=records, column=column)], refused


class ProtobufReader:
    """Values of one Protobuf schema; a framed value says which of its messages it is.

    Only those of the message with the name `message` are read, if there is one.
    """

    def __init__(
        self, descriptors: str, message: str | None, kind: pa.DataType, *, is_framed: bool
    ) -> None:
        self._types = MessageTypes(descriptors)
        self._kind = kind
        self._is_framed = is_framed
        self._message = message
        self._known: dict[tuple[int, ...], ProtobufMessages | str] = {}
        if not is_framed:
            self._known[()] = self._opened(self._types.named(message))

    def _opened(self, descriptor: Any) -> ProtobufMessages | str:
        """The messages of a type, or why they are not read."""
        if self._message is not None and descriptor.full_name != self._message:
            return f"the value is a {descriptor.full_name}, not a {self._message}"
        messages = ProtobufMessages(descriptor)
        contradicted = merge_types(self._kind, messages.type, widens=False).contradicted
        return _contradiction(contradicted) if contradicted else messages

    def read(
        self, values: Sequence[bytes], kind: pa.DataType
    ) -> tuple[list[ReadValues], dict[int, str]]:
        found: dict[tuple[int, ...], tuple[list[int], list[Any]]] = {}
        refused: dict[int, str] = {}
        path: tuple[int, ...] = ()
        at = 0
        for number, value in enumerate(values):
            try:
                if self._is_framed:
                    path, at = message_indexes(value, FRAME_SIZE)
                message = self._messages(path).message(value, at)
            except MisfitError as error:
                refused[number] = str(error)
                continue
            numbers, messages = found.setdefault(path, ([], []))
            numbers.append(number)
            messages.append(message)
        read = [
            ReadValues(
                numbers=numbers,
                items=messages,
                column=partial(self._messages(path).column, kind=kind),
            )
            for path, (numbers, messages) in found.items()
        ]
        return read, refused

    def _messages(self, path: tuple[int, ...]) -> ProtobufMessages:
        known = self._known.get(path)
        if known is None:
            descriptor = self._types.at(path)
            known = (
                f"its schema has no message at {list(path)}"
                if descriptor is None
                else self._opened(descriptor)
            )
            if len(self._known) < _PATHS_MAX:  # they come from the values
                self._known[path] = known
        if isinstance(known, str):
            raise MisfitError(known)
        return known


def _contradiction(contradicted: tuple[str, ...]) -> str:
    return f"its schema contradicts the table: {contradicted[0]}"


class SingleDecoder:
    """All values have the same schema."""

    def __init__(self, reader: Reader, kind: pa.DataType) -> None:
        self.type = optional(kind)
        self._reader = reader

    def decode(self, values: "pa.Array[Any]") -> DecodedValues:
        rows = np.flatnonzero(np.asarray(values.is_valid()))
        work = _Work(self.type)
        work.read(self._reader, values, rows)
        return work.decoded(len(values))


class RegistryDecoder:
    """Each value begins with the id of its schema. `unknown` are ids that no registry knows."""

    def __init__(
        self, readers: Mapping[int, Reader], kind: pa.DataType, *, unknown: frozenset[int]
    ) -> None:
        self.type = optional(kind)
        self._readers = readers
        self._unknown = unknown

    def decode(self, values: "pa.Array[Any]") -> DecodedValues:
        ids = schema_ids(values)
        valid = np.asarray(values.is_valid())
        work = _Work(self.type)
        missing: set[int] = set()
        for number in np.unique(ids[valid]).tolist():
            rows = np.flatnonzero(valid & (ids == number))
            reader = self._readers.get(number)
            if reader is not None:
                work.read(reader, values, rows)
            elif number < 0:
                work.refuse(rows, NOT_FRAMED)
            else:
                if number not in self._unknown:
                    missing.add(number)
                work.refuse(rows, f"the schema id {number} is unknown to the registry")
        return work.decoded(len(values), frozenset(missing))


class FramedJsonDecoder:
    """JSON after the id of a schema. The id is not looked at: the type is that of the table."""

    def __init__(self, decoder: JsonDecoder) -> None:
        self.type = decoder.type
        self._decoder = decoder

    def decode(self, values: "pa.Array[Any]") -> DecodedValues:
        is_framed = pa.array(schema_ids(values) >= 0)
        bare: Any = pc.binary_slice(values, FRAME_SIZE)
        found = self._decoder.decode(pc.if_else(is_framed, bare, pa.scalar(None, pa.binary())))
        is_wrong = pc.and_(pc.invert(is_framed), values.is_valid())
        reasons: Any = pc.if_else(is_wrong, pa.scalar(NOT_FRAMED), found.reasons)
        return replace(found, reasons=reasons)


class UnreadableReader:
    """A schema that cannot be used; the reason is that of every value."""

    def __init__(self, error: ConfigError) -> None:
        self._reason = str(error)

    def read(
        self, values: Sequence[bytes], kind: pa.DataType
    ) -> tuple[list[ReadValues], dict[int, str]]:
        return [], dict.fromkeys(range(len(values)), self._reason)


class _Work:
    """What was read so far of one batch."""

    def __init__(self, kind: pa.DataType) -> None:
        self._kind = kind
        self._parts: list[tuple[pa.Array[Any], pa.Array[Any]]] = []
        self._refused: list[tuple[int, str]] = []

    def refuse(self, rows: "np.ndarray[Any, Any]", reason: str) -> None:
        self._refused += [(row, short_reason(reason)) for row in rows.tolist()]

    def read(self, reader: Reader, values: "pa.Array[Any]", rows: "np.ndarray[Any, Any]") -> None:
        """Read the values of these rows, of which none is null."""
        if not len(rows):
            return
        taken: list[Any] = values.take(rows).to_pylist()
        found, refused = reader.read(taken, self._kind)
        for each in found:
            self._place(each.column, each.items, rows[np.asarray(each.numbers, np.int64)])
        for number, reason in refused.items():
            self._refused.append((int(rows[number]), short_reason(reason)))

    def _place(
        self,
        column: "Callable[[Sequence[Any]], pa.Array[Any]]",
        items: Sequence[Any],
        rows: "np.ndarray[Any, Any]",
    ) -> None:
        """Make a column of the items; in halves, if one of them does not fit."""
        if not len(rows):
            return
        try:
            self._parts.append((pa.array(rows), column(items)))
        except MisfitError as error:
            if len(rows) == 1:
                self.refuse(rows, str(error))
                return
            half = len(rows) // 2
            self._place(column, items[:half], rows[:half])
            self._place(column, items[half:], rows[half:])

    def decoded(self, count: int, missing: frozenset[int] = frozenset()) -> DecodedValues:
        texts: list[str | None] = [None] * count
        for row, reason in self._refused:
            texts[row] = reason
        if len(self._parts) == 1 and len(self._parts[0][0]) == count:
            values = self._parts[0][1]
        else:
            values = scattered(self._kind, count, self._parts)
        return DecodedValues(values=values, reasons=pa.array(texts, pa.string()), missing=missing)
