"""Parses lines into records: values, ``key:value`` pairs, or JSON objects."""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import Any, Final, Protocol

from cordwood.cli.at.backend import NewRecord
from cordwood.cli.records.input_lines import LineBlock
from cordwood.errors import InvalidRecordError
from cordwood.format.record import Header, Record
from cordwood.quantities import INT32_MAX, INT64_MAX
from cordwood.value_class import dataclass

# Records by partition; None: chosen by key.
Destinations = dict[int | None, list[NewRecord]]


class LineParser(Protocol):
    """Parses lines into records. `InvalidRecordError` names a line that is not one."""

    def parse(self, block: LineBlock) -> Destinations: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TextLines:
    """Each line is a value, or a key and a value.

    key         the key of all lines without a separator
    separator   its first occurrence separates key and value; None: lines have no keys
    null_text   a key or value equal to this text is null
    """

    key: bytes | None = None
    separator: bytes | None = None
    null_text: bytes | None = None
    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    partition: int | None = None

    def parse(self, block: LineBlock) -> Destinations:
        pairs = self._pairs(block)
        if self.null_text is not None:
            null = self.null_text
            pairs = [(None if k == null else k, None if v == null else v) for k, v in pairs]
        records: list[NewRecord] = [*pairs]
        if self.headers or self.timestamp_ms is not None:
            headers, timestamp_ms = self.headers, self.timestamp_ms
            records = [Record(value, key, headers, timestamp_ms) for key, value in pairs]
        return {self.partition: records} if records else {}

    def _pairs(self, block: LineBlock) -> list[tuple[bytes | None, bytes | None]]:
        if self.separator is None:
            return [(self.key, line) for line in block.lines]
        pairs: list[tuple[bytes | None, bytes | None]] = []
        for number, line in enumerate(block.lines, block.first_number):
            key, separator, value = line.partition(self.separator)
            if not separator:
                raise InvalidRecordError(
                    f"line {number}: no {self.separator.decode()!r} between key and value"
                )
            pairs.append((key, value))
        return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonLines:
    """Each line is an object: a value, and optionally key, headers, timestamp, partition.

    This is what ``cordwood consume --json`` prints. A value that is not a string becomes its JSON
    text. The timestamp of the command line is the default for lines without one; its headers are
    added; its partition overrides that of the line.
    """

    headers: Sequence[Header] = ()
    timestamp_ms: int | None = None
    partition: int | None = None

    def parse(self, block: LineBlock) -> Destinations:
        found: Destinations = {}
        for number, line in enumerate(block.lines, block.first_number):
            if not line.strip():
                continue
            try:
                partition, record = self._record(json.loads(line))
            except (ValueError, TypeError, binascii.Error, RecursionError) as error:
                raise InvalidRecordError(f"line {number} is not a record: {error}") from error
            found.setdefault(partition, []).append(record)
        return found

    def _record(self, fields: object) -> tuple[int | None, Record]:
        if not isinstance(fields, dict):
            raise ValueError("not a JSON object")
        if "value" not in fields and "value_base64" not in fields:
            raise ValueError('no "value"; use null to delete a key')
        timestamp = _number(fields, "timestamp", INT64_MAX)
        partition = _number(fields, "partition", INT32_MAX)
        record = Record(
            _bytes(fields, "value"),
            _bytes(fields, "key"),
            (*_headers(fields.get("headers")), *self.headers),
            self.timestamp_ms if timestamp is None else timestamp,
        )
        return (partition if self.partition is None else self.partition), record


def _bytes(fields: dict[str, Any], name: str) -> bytes | None:
    encoded = fields.get(f"{name}_base64")
    if encoded is not None:
        if not isinstance(encoded, str):
            raise TypeError(f'"{name}_base64" must be a string')
        return base64.b64decode(encoded, validate=True)
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, str):
        return value.encode()
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _number(fields: dict[str, Any], name: str, maximum: int) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= maximum:
        raise ValueError(f'"{name}" is {value!r}; it must be a number from 0 to {maximum}')
    return value


_HEADERS_RULE: Final = '"headers" must be an object, or a list of {"name": ..., "value": ...}'


def _headers(value: object) -> list[Header]:
    if value is None:
        return []
    if isinstance(value, dict):
        return [(name, _bytes({"value": item}, "value")) for name, item in value.items()]
    if not isinstance(value, list):
        raise ValueError(_HEADERS_RULE)
    headers: list[Header] = []
    for item in value:
        if isinstance(item, list) and len(item) == 2 and isinstance(item[0], str):
            headers.append((item[0], _bytes({"value": item[1]}, "value")))
        elif isinstance(item, dict) and isinstance(item.get("name"), str):
            headers.append((item["name"], _bytes(item, "value")))
        else:
            raise ValueError(_HEADERS_RULE)
    return headers


def parse_header(text: str) -> Header:
    """``name=value`` as given to ``-H``; without ``=`` the value is null."""
    name, equals, value = text.partition("=")
    return name, value.encode() if equals else None
