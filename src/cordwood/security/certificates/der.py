"""Reads ASN.1 values in DER, as far as certificates need it. Pure.

Every length is compared with what is there. Nothing recurses, so depth costs nothing.
"""

from collections.abc import Iterator
from typing import Final, NamedTuple

from cordwood.errors import FormatError, TruncatedInputError

_LONG_LENGTH: Final = 0x80
_LENGTH_BYTES_MAX: Final = 4
_MORE: Final = 0x80  # the bit of an octet that is not the last of its number
_FIRST_ARCS: Final = 40


class DerValue(NamedTuple):
    """A tag, the content, and both together as they were encoded."""

    tag: int
    content: bytes
    encoded: bytes


def read_value(data: bytes, at: int = 0) -> DerValue:
    """The value that begins at `at`. Raises `FormatError`."""
    if len(data) - at < 2:
        raise TruncatedInputError("DER value", needed=2, got=len(data) - at)
    tag, size, begin = data[at], data[at + 1], at + 2
    if size >= _LONG_LENGTH:
        count = size - _LONG_LENGTH
        if not 0 < count <= _LENGTH_BYTES_MAX:
            raise FormatError(f"DER length of {count} bytes", position=at)
        size = int.from_bytes(data[begin : begin + count], "big")
        begin += count
    if size > len(data) - begin:
        raise TruncatedInputError("DER value", needed=size, got=len(data) - begin)
    end = begin + size
    return DerValue(tag, data[begin:end], data[at:end])


def values_in(content: bytes) -> Iterator[DerValue]:
    """The values of a sequence or set, one after the other. Raises `FormatError`."""
    at = 0
    while at < len(content):
        value = read_value(content, at)
        yield value
        at += len(value.encoded)


def dotted_oid(content: bytes) -> str:
    """An object identifier as text: ``2.5.4.3``. Raises `FormatError`."""
    arcs: list[int] = []
    number = 0
    for octet in content:
        number = number << 7 | octet & ~_MORE
        if not octet & _MORE:
            arcs.append(number)
            number = 0
    if not arcs or content[-1] & _MORE:
        raise FormatError("object identifier without end")
    top = min(arcs[0] // _FIRST_ARCS, 2)
    return ".".join(map(str, [top, arcs[0] - top * _FIRST_ARCS, *arcs[1:]]))
