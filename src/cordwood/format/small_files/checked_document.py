"""The envelope of a store's own small files: a numbered body under a checksum.

    <name> 1 <generation> <crc32c, 8 hex digits>
    <body>

The checksum covers the generation as text, a newline, and the body. The generation grows with
every change, so that of several sound copies the newest can be found.
"""

from typing import Final, NamedTuple

from cordwood.checksums import crc32c
from cordwood.errors import FormatError

_VERSION: Final = "1"


class CheckedDocument(NamedTuple):
    """A body and its generation, once the checksum was found right."""

    generation: int
    body: bytes


def encode_document(name: str, document: CheckedDocument) -> bytes:
    checksum = _checksum(str(document.generation).encode(), document.body)
    return _head(name, document.generation, checksum) + document.body


def document_head_size(name: str, generation: int) -> int:
    """The bytes that `encode_document` writes before the body."""
    return len(_head(name, generation, 0))


def decode_document(name: str, content: bytes) -> CheckedDocument:
    """Raises `FormatError` unless `content` is a whole, unchanged document of that name."""
    head, _, body = content.partition(b"\n")
    fields = head.split(b" ")
    if len(fields) != 4 or fields[0] != name.encode() or not fields[2].isdigit():
        raise FormatError(f"not a {name} file")
    if fields[1] != _VERSION.encode():
        raise FormatError(f"{name} file of unknown version {fields[1]!r}")
    if f"{_checksum(fields[2], body):08x}".encode() != fields[3]:
        raise FormatError(f"the checksum of the {name} file does not match")
    return CheckedDocument(int(fields[2]), body)


def _head(name: str, generation: int, checksum: int) -> bytes:
    return f"{name} {_VERSION} {generation} {checksum:08x}\n".encode()


def _checksum(generation: bytes, body: bytes) -> int:
    return crc32c(generation + b"\n" + body)
