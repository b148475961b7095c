r"""Records as text: in a format like kcat's, or as JSON that ``cordwood produce --json`` reads.

%k  key              %K  its size, -1 for null
%v  value (also %s)  %S  its size, -1 for null
%t  topic            %p  partition          %o  offset
%T  timestamp (ms)   %I  the same as ISO 8601
%h  headers, name=value with commas         %%  a percent sign
\n \t \r \0 \\ \x41   as in most languages
"""

import base64
import json
import re
from collections.abc import Callable
from typing import Any, Final

from cordwood.cli.readable_values import iso_time, printable
from cordwood.errors import ConfigError
from cordwood.format.record import Record

# Turns a partition and a record into the bytes to print.
Formatter = Callable[[int, Record], bytes]
_Part = Callable[[int, Record], bytes]

_TOKEN: Final = re.compile(r"%(.)|\\(x[0-9A-Fa-f]{2}|.)|%$|\\$", re.DOTALL)
_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\"}


def record_formatter(
    text: str, topic: str, *, null_text: str = "", for_terminal: bool = False
) -> Formatter:
    """Formats records as `text` says. For a terminal, control characters are escaped."""
    shown = _printable_bytes if for_terminal else bytes
    null = null_text.encode()
    parts: list[bytes | _Part] = []
    position = 0
    for found in _TOKEN.finditer(text):
        parts.append(text[position : found.start()].encode())
        position = found.end()
        if found[1] is not None:
            parts.append(_token(found[1], text, topic, shown, null))
        elif found[2] is not None:
            parts.append(_escape(found[2]))
        else:
            parts.append(found[0].encode())
    parts.append(text[position:].encode())
    return _joined(parts)


def _joined(parts: list[bytes | _Part]) -> Formatter:
    """One function that applies all parts; neighbouring texts are joined first."""
    makers: list[_Part] = []
    texts = b""
    for part in parts:
        if isinstance(part, bytes):
            texts += part
            continue
        if texts:
            makers.append(_constant(texts))
            texts = b""
        makers.append(part)
    if texts:
        makers.append(_constant(texts))

    def formatted(partition: int, record: Record) -> bytes:
        return b"".join([make(partition, record) for make in makers])

    return formatted


def _constant(text: bytes) -> _Part:
    return lambda partition, record: text


def _escape(found: str) -> bytes:
    if found[0] == "x" and len(found) == 3:
        return bytes.fromhex(found[1:])
    return _ESCAPES.get(found, "\\" + found).encode()


def _token(
    name: str, text: str, topic: str, shown: Callable[[bytes], bytes], null: bytes
) -> bytes | _Part:
    tokens: dict[str, bytes | _Part] = {
        "k": lambda partition, record: null if record.key is None else shown(record.key),
        "v": lambda partition, record: null if record.value is None else shown(record.value),
        "s": lambda partition, record: null if record.value is None else shown(record.value),
        "K": lambda partition, record: _size(record.key),
        "S": lambda partition, record: _size(record.value),
        "p": lambda partition, record: b"%d" % partition,
        "o": lambda partition, record: b"%d" % record.offset,
        "T": lambda partition, record: b"%d" % (record.timestamp_ms or 0),
        "I": lambda partition, record: iso_time(record.timestamp_ms or 0).encode(),
        "h": lambda partition, record: _headers(record, shown, null),
        "t": topic.encode(),
        "%": b"%",
    }
    if name not in tokens:
        known = ", ".join(f"%{token}" for token in tokens)
        raise ConfigError("--format", text, f"unknown token %{name}; known are {known}")
    return tokens[name]


def _size(data: bytes | None) -> bytes:
    return b"%d" % (-1 if data is None else len(data))


def _headers(record: Record, shown: Callable[[bytes], bytes], null: bytes) -> bytes:
    return b",".join(
        name.encode() + b"=" + (null if value is None else shown(value))
        for name, value in record.headers
    )


def _printable_bytes(data: bytes) -> bytes:
    return printable(data).encode()


# --- JSON -------------------------------------------------------------------------------------


def json_formatter(topic: str) -> Formatter:
    """Formats each record as one line: ``{"topic": ..., "partition": ..., "offset": ..., ...}``.

    Keys and values are text; if they are not UTF-8, ``key_base64`` and ``value_base64`` hold them.
    """
    encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode

    def formatted(partition: int, record: Record) -> bytes:
        return encode(record_fields(topic, partition, record)).encode() + b"\n"

    return formatted


def record_fields(topic: str, partition: int, record: Record) -> dict[str, Any]:
    """The fields of a record in JSON."""
    fields: dict[str, Any] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
    }
    fields |= text_field("key", record.key) | text_field("value", record.value)
    fields["headers"] = [
        {"name": name} | text_field("value", value) for name, value in record.headers
    ]
    return fields


def text_field(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as text under `name`, or in base64 under ``name_base64`` if they are not UTF-8."""
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
