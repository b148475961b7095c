"""Which decoder understands the bytes of a key, a value or a header.

Without a choice of the reader they are tried in this order: JSON, text, MessagePack, Avro, hex. All
of them take any bytes, and none takes more time or memory than a small multiple of the input.
"""

import base64
import json
import re
import struct
import unicodedata
from collections.abc import Callable
from typing import Final

from cordwood.console.decoding.avro_values import MAGIC, decode_avro_file
from cordwood.console.decoding.decoded import (
    AVRO,
    BASE64,
    DEPTH_MAX,
    HEX,
    INTERNAL,
    JSON,
    MSGPACK,
    NONE,
    NUMBER,
    PARSED_BYTES_MAX,
    PREVIEW_CHARS_MAX,
    SHOWN_BYTES_MAX,
    TEXT,
    Decoded,
    UndecodableError,
)
from cordwood.console.decoding.msgpack_values import decode_msgpack

CHOICES: Final = ("auto", JSON, TEXT, MSGPACK, AVRO, NUMBER, BASE64, HEX)

_OPENING: Final = re.compile(rb"[\[{]")
_HEX_BYTES_MAX: Final = 16 * 1024
_NUMBERS: Final = {4: (">i", ">f"), 8: (">q", ">d")}
_REGISTRY_PREFIX: Final = 0  # of a value whose schema is in a registry; four bytes of its id follow


def decode(data: bytes | None, choice: str = "auto") -> Decoded:
    """`data` as text. A choice that does not fit is reported in the note, and hex is shown."""
    if data is None:
        return Decoded(kind=NONE, text="null")
    if choice == "auto":
        return _guessed(data)
    try:
        return _DECODERS[choice](data)
    except (UndecodableError, KeyError) as error:
        why = f"this decoder is unknown: {choice}" if isinstance(error, KeyError) else str(error)
        shown = as_hex(data)
        return Decoded(
            kind=HEX,
            text=shown.text,
            size=len(data),
            is_cut=shown.is_cut,
            note=f"not {choice}: {why}",
        )


def decoded_content(kind: str, content: object, size: int | None) -> Decoded:
    """A value with structure, as indented JSON."""
    text = json.dumps(content, indent=2, ensure_ascii=False, default=str)
    is_cut = len(text) > SHOWN_BYTES_MAX
    return Decoded(
        kind=kind,
        text=visible(text[:SHOWN_BYTES_MAX], keeps_lines=True),
        size=size,
        is_cut=is_cut,
        content=content,
    )


def internal_content(content: object, size: int | None) -> Decoded:
    return decoded_content(INTERNAL, content, size)


def preview(decoded: Decoded) -> str:
    """The beginning of the text in one line."""
    if decoded.content is not None and isinstance(decoded.content, (dict, list)):
        text = json.dumps(decoded.content, ensure_ascii=False, default=str)
    else:
        text = decoded.text
    line = " ".join(text[: 4 * PREVIEW_CHARS_MAX].split())
    return visible(line if len(line) <= PREVIEW_CHARS_MAX else f"{line[:PREVIEW_CHARS_MAX]}…")


def _guessed(data: bytes) -> Decoded:
    for attempt in (_as_json, _as_text, _as_container, _as_avro):
        try:
            return attempt(data)
        except UndecodableError:
            continue
    shown = as_hex(data)
    if len(data) > 5 and data[0] == _REGISTRY_PREFIX:
        schema_id = int.from_bytes(data[1:5], "big")
        note = f"may be a value of schema {schema_id} in a schema registry"
        return Decoded(kind=HEX, text=shown.text, size=len(data), is_cut=shown.is_cut, note=note)
    return shown


def _as_json(data: bytes) -> Decoded:
    if len(data) > PARSED_BYTES_MAX:
        raise UndecodableError(f"{len(data)} bytes are too many to parse")
    if data[:1] not in b'{["-0123456789tfn \t\r\n' or not data:
        raise UndecodableError("it is not JSON")
    content = parse_json(data)
    if not isinstance(content, (dict, list)):
        text = data.decode()
        return Decoded(
            kind=JSON, text=visible(text, keeps_lines=True), size=len(data), content=content
        )
    return decoded_content(JSON, content, len(data))


def parse_json(data: bytes) -> object:
    """JSON within limits. Raises `UndecodableError`."""
    if len(data) > PARSED_BYTES_MAX:
        raise UndecodableError(f"{len(data)} bytes are too many to parse")
    if len(_OPENING.findall(data)) > DEPTH_MAX and _depth(data) > DEPTH_MAX:
        raise UndecodableError("it is nested too deep")
    try:
        found: object = json.loads(data, parse_int=_bounded_int)
    except (ValueError, RecursionError) as error:
        raise UndecodableError(f"it is not JSON: {error}") from None
    return found


def _bounded_int(digits: str) -> int | str:
    """Numbers of thousands of digits stay text: turning them into numbers takes quadratic time."""
    return int(digits) if len(digits) <= 40 else digits


def _depth(data: bytes) -> int:
    """An upper bound of the depth: brackets inside of texts count too."""
    depth = deepest = 0
    for match in re.finditer(rb"[\[{\]}]", data):
        depth += 1 if match[0] in b"[{" else -1
        deepest = max(deepest, depth)
    return deepest


def _as_text(data: bytes) -> Decoded:
    try:
        text = data[: SHOWN_BYTES_MAX + 3].decode()
    except UnicodeDecodeError as error:
        if error.start < SHOWN_BYTES_MAX - 3:
            raise UndecodableError(f"it is not UTF-8: byte {error.start}") from None
        text = data[: error.start].decode()
    if any(ord(c) < 0x20 and c not in "\t\r\n" for c in text[:4096]):
        raise UndecodableError("it has control characters")
    return _text(text, len(data))


def _text(text: str, size: int) -> Decoded:
    return Decoded(
        kind=TEXT,
        text=visible(text[:SHOWN_BYTES_MAX], keeps_lines=True),
        size=size,
        is_cut=size > SHOWN_BYTES_MAX,
    )


def _as_forced_text(data: bytes) -> Decoded:
    return _text(data[:SHOWN_BYTES_MAX].decode("utf-8", "replace"), len(data))


def _as_msgpack(data: bytes) -> Decoded:
    if len(data) > PARSED_BYTES_MAX:
        raise UndecodableError(f"{len(data)} bytes are too many to parse")
    return decoded_content(MSGPACK, decode_msgpack(data), len(data))


def _as_container(data: bytes) -> Decoded:
    """MessagePack, but only a map or a list: nearly any byte is a number in MessagePack."""
    if not data or not (0x80 <= data[0] <= 0x9F or 0xDC <= data[0] <= 0xDF):
        raise UndecodableError("it is not a map or a list")
    return _as_msgpack(data)


def _as_avro(data: bytes) -> Decoded:
    if not data.startswith(MAGIC):
        raise UndecodableError("it is not an Avro file; schema registries are not supported yet")
    if len(data) > PARSED_BYTES_MAX:
        raise UndecodableError(f"{len(data)} bytes are too many to parse")
    found = decode_avro_file(data)
    return decoded_content(AVRO, found[0] if len(found) == 1 else found, len(data))


def _as_number(data: bytes) -> Decoded:
    forms = _NUMBERS.get(len(data))
    if forms is None:
        raise UndecodableError(f"a number has 4 or 8 bytes, not {len(data)}")
    whole, broken = (struct.unpack(form, data)[0] for form in forms)
    return Decoded(
        kind=NUMBER, text=f"{whole}", size=len(data), note=f"as a floating-point number: {broken:g}"
    )


def _as_base64(data: bytes) -> Decoded:
    text = base64.b64encode(data[: SHOWN_BYTES_MAX // 2]).decode()
    return Decoded(kind=BASE64, text=text, size=len(data), is_cut=len(data) > SHOWN_BYTES_MAX // 2)


def as_hex(data: bytes) -> Decoded:
    """Lines of sixteen bytes, with their position and as characters."""
    lines = []
    for at in range(0, min(len(data), _HEX_BYTES_MAX), 16):
        part = data[at : at + 16]
        letters = "".join(chr(b) if 0x20 <= b < 0x7F else "." for b in part)
        lines.append(f"{at:08x}  {part[:8].hex(' '):<23}  {part[8:].hex(' '):<23}  {letters}")
    return Decoded(
        kind=HEX, text="\n".join(lines), size=len(data), is_cut=len(data) > _HEX_BYTES_MAX
    )


_DECODERS: Final[dict[str, Callable[[bytes], Decoded]]] = {
    JSON: _as_json,
    TEXT: _as_forced_text,
    MSGPACK: _as_msgpack,
    AVRO: _as_avro,
    NUMBER: _as_number,
    BASE64: _as_base64,
    HEX: as_hex,
}

_INVISIBLE: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def visible(text: str, *, keeps_lines: bool = False) -> str:
    """The text with invisible characters escaped: some of them reorder what stands beside them."""
    if text.isascii() and text.isprintable():
        return text
    kept = "\n\t" if keeps_lines else ""
    return "".join(
        c if c in kept or c == " " or unicodedata.category(c) not in _INVISIBLE else _escaped(c)
        for c in text
    )


def _escaped(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{{{code:x}}}"
