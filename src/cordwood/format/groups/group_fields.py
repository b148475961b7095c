"""Fields of the records in ``__consumer_offsets``, read one after another. Big-endian.

Each value there starts with its version. Later versions are *flexible*: sizes are unsigned
varints of size + 1, with 0 for null, and each structure ends with tagged fields:

    varint   count
    varint   tag       \\
    varint   size       > for each
    n        content   /

Earlier ones have an int16 size before a string and an int32 size before bytes and arrays, with
-1 for null. Reads are checked against the end of the input, and no memory is allocated according
to an unchecked size.
"""

import struct
from typing import Final
from uuid import UUID

from cordwood.errors import FormatError, LimitExceededError, TruncatedInputError

INT8: Final = struct.Struct(">b")
INT16: Final = struct.Struct(">h")
INT32: Final = struct.Struct(">i")
INT64: Final = struct.Struct(">q")

STRING_BYTES_MAX: Final = 2**15 - 1  # the largest int16 size
UUID_BYTES: Final = 16
_VARINT_BYTES_MAX: Final = 5
_VARINT_MORE: Final = 0x80  # set in every byte except the last


class FieldReader:
    """Reads one field after another; `FormatError` on bytes that are missing or left over."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._position = 0

    # --- fixed sizes -------------------------------------------------------------------------

    def integer(self, layout: struct.Struct, what: str) -> int:
        number: int = layout.unpack(self.take(layout.size, what))[0]
        return number

    def int8(self, what: str) -> int:
        return self.integer(INT8, what)

    def int16(self, what: str) -> int:
        return self.integer(INT16, what)

    def int32(self, what: str) -> int:
        return self.integer(INT32, what)

    def int64(self, what: str) -> int:
        return self.integer(INT64, what)

    def uuid(self, what: str) -> UUID:
        return UUID(bytes=self.take(UUID_BYTES, what))

    # --- sizes of 16 and 32 bits -------------------------------------------------------------

    def string(self, what: str) -> str:
        return _not_null(self.nullable_string(what), what, self._position)

    def nullable_string(self, what: str) -> str | None:
        return self._text(self.int16(what), what)

    def sized_bytes(self, what: str) -> bytes:
        size = self.int32(what)
        if size < 0:
            raise FormatError(f"{what} is null", position=self._position)
        return self.take(size, what)

    def array_length(self, what: str) -> int:
        """The number of items; each takes at least one byte."""
        return self._checked_length(self.int32(what), what)

    def nullable_array_length(self, what: str) -> int:
        """As `array_length`; -1 if the array is null."""
        length = self.int32(what)
        return -1 if length == -1 else self._checked_length(length, what)

    # --- sizes of varints --------------------------------------------------------------------

    def compact_string(self, what: str) -> str:
        return _not_null(self.nullable_compact_string(what), what, self._position)

    def nullable_compact_string(self, what: str) -> str | None:
        return self._text(self.varint(what) - 1, what)

    def compact_bytes(self, what: str) -> bytes:
        size = self.varint(what) - 1
        if size < 0:
            raise FormatError(f"{what} is null", position=self._position)
        return self.take(size, what)

    def compact_array_length(self, what: str) -> int:
        """The number of items; each takes at least one byte. -1 if the array is null."""
        length = self.varint(what) - 1
        return length if length < 0 else self._checked_length(length, what)

    def tagged_fields(self) -> dict[int, bytes]:
        """The content of each tag, including tags of later versions."""
        found: dict[int, bytes] = {}
        for _ in range(self.varint("count of tagged fields")):
            tag = self.varint("tag")
            found[tag] = self.take(self.varint("size of a tagged field"), "tagged field")
        return found

    # --- parts of fields ---------------------------------------------------------------------

    @property
    def position(self) -> int:
        return self._position

    def expect_end(self) -> None:
        left_over = len(self._data) - self._position
        if left_over:
            raise FormatError(f"{left_over} bytes after the last field", position=self._position)

    def take(self, size: int, what: str) -> bytes:
        start = self._position
        end = start + size
        if end > len(self._data):
            raise TruncatedInputError(
                what, needed=size, got=len(self._data) - start, position=start
            )
        self._position = end
        return self._data[start:end]

    def varint(self, what: str) -> int:
        start = self._position
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self.take(1, what)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < _VARINT_MORE:
                return value
        raise FormatError(f"{what} is a varint of more than 5 bytes", position=start)

    def _text(self, size: int, what: str) -> str | None:
        if size < 0:
            return None
        start = self._position
        try:
            return self.take(size, what).decode("utf-8")
        except UnicodeDecodeError as error:
            raise FormatError(f"{what} is not UTF-8", position=start) from error

    def _checked_length(self, length: int, what: str) -> int:
        left = len(self._data) - self._position
        if length < 0:
            raise FormatError(f"{what} is null", position=self._position)
        if length > left:
            raise TruncatedInputError(what, needed=length, got=left, position=self._position)
        return length


def _not_null(text: str | None, what: str, position: int) -> str:
    if text is None:
        raise FormatError(f"{what} is null", position=position)
    return text


def encode_string(what: str, text: str) -> bytes:
    content = _checked_text(what, text)
    return INT16.pack(len(content)) + content


def encode_nullable_string(what: str, text: str | None) -> bytes:
    return INT16.pack(-1) if text is None else encode_string(what, text)


def encode_sized_bytes(content: bytes) -> bytes:
    return INT32.pack(len(content)) + content


def encode_compact_string(what: str, text: str) -> bytes:
    content = _checked_text(what, text)
    return encode_varint(len(content) + 1) + content


def encode_nullable_compact_string(what: str, text: str | None) -> bytes:
    return encode_varint(0) if text is None else encode_compact_string(what, text)


def encode_varint(value: int) -> bytes:
    encoded = bytearray()
    while value >= _VARINT_MORE:
        encoded.append(value & 0x7F | _VARINT_MORE)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _checked_text(what: str, text: str) -> bytes:
    content = text.encode("utf-8")
    if len(content) > STRING_BYTES_MAX:
        raise LimitExceededError(what, size=len(content), limit=STRING_BYTES_MAX)
    return content
