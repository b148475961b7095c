"""Avro records as a struct column. fastavro reads them, record by record, in compiled code."""

import io
import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pyarrow as pa

from cordwood.spark.decoding.avro_schemas import AvroSchema
from cordwood.spark.decoding.decoded_values import MisfitError
from cordwood.spark.decoding.type_casting import conformed

ReadRecord = Callable[[bytes], Any]


class AvroRecords:
    """Reads records that were written with one schema. For one thread."""

    def __init__(self, schema: AvroSchema) -> None:
        from fastavro import schemaless_reader

        self._read: Any = schemaless_reader
        self._schema = schema

    def records(self, values: Iterable[bytes], at: int) -> tuple[list[Any], dict[int, str]]:
        """What the values hold from position `at` on; by their numbers, why some cannot be read.

        A value that cannot be read has no record.
        """
        records: list[Any] = []
        refused: dict[int, str] = {}
        unions = self._schema.unions
        for number, value in enumerate(values):
            try:
                record = self._record(value, at)
                for path in unions:
                    _to_json(record, path)
                records.append(record)
            except MisfitError as error:
                refused[number] = str(error)
            except (OverflowError, TypeError, ValueError) as error:
                refused[number] = f"the value does not fit: {error}"
        return records, refused

    def column(self, records: Sequence[Any], kind: pa.DataType) -> "pa.Array[Any]":
        """Records as `kind`. Raises `MisfitError`."""
        try:
            return conformed(pa.array(records, self._schema.wire), kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise MisfitError(f"the value does not fit: {error}") from error

    def _record(self, value: bytes, at: int) -> Any:
        source = io.BytesIO(value)
        source.seek(at)
        try:
            record = self._read(source, self._schema.parsed, None)
        except (EOFError, IndexError, KeyError, StopIteration) as error:
            raise MisfitError(f"the value is not Avro of this schema: {error!r}") from error
        except (ValueError, OverflowError, TypeError, ArithmeticError) as error:
            raise MisfitError(f"the value is not Avro of this schema: {error}") from error
        if source.tell() != len(value):
            raise MisfitError(
                f"the record ends at byte {source.tell()} of {len(value)}: the value is not Avro "
                "of this schema"
            )
        return record


def _to_json(content: Any, path: tuple[str, ...]) -> None:
    """Replace what is at the path by its JSON, in place."""
    if content is None:
        return
    name, rest = path[0], path[1:]
    if name == "[]":
        places: Any = range(len(content))
    elif name == "{}":
        places = list(content)
    else:
        places = (name,)
    for place in places:
        if rest:
            _to_json(content[place], rest)
        elif content[place] is not None:
            content[place] = json.dumps(content[place], default=_plain)


def _plain(value: Any) -> Any:
    return value.hex() if isinstance(value, bytes) else str(value)
