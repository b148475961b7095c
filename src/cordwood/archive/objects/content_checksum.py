"""The checksum that S3 and compatible stores keep of each object, computed from the same bytes.

    one part, uploaded whole          MD5 of the object
    several parts, or a full one      MD5 of the parts' MD5s, "-", the number of parts

Stores that encrypt with a key of the customer have another value in its place. So a value that is
equal proves that the store has the right bytes, and a value that differs proves nothing.
"""

import hashlib

from cordwood.storage.files import Buffer


class ContentChecksum:
    """Takes the bytes of one object in order. For one thread."""

    def __init__(self, part_bytes: int) -> None:
        self._part_bytes = part_bytes
        self._whole_parts: list[bytes] = []
        self._part = _md5()
        self._part_size = 0

    def update(self, data: Buffer) -> None:
        rest = memoryview(data).cast("B")
        while len(rest):
            room = self._part_bytes - self._part_size
            self._part.update(rest[:room])
            self._part_size += len(rest[:room])
            rest = rest[room:]
            if self._part_size == self._part_bytes:
                self._whole_parts.append(self._part.digest())
                self._part, self._part_size = _md5(), 0

    def value(self) -> str:
        """Of what was taken so far."""
        if not self._whole_parts:
            return self._part.hexdigest()
        parts = [*self._whole_parts, *([self._part.digest()] if self._part_size else [])]
        return f"{_md5(b''.join(parts)).hexdigest()}-{len(parts)}"


def _md5(data: bytes = b"") -> "hashlib._Hash":
    # Not for security: it is compared with what the store computed, and detects damage.
    return hashlib.md5(data, usedforsecurity=False)


def content_checksum(data: bytes, part_bytes: int) -> str:
    """The checksum of an object of these bytes."""
    checksum = ContentChecksum(part_bytes)
    checksum.update(data)
    return checksum.value()
