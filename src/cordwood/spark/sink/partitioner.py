"""How the key of a row chooses its partition, if no column does: the option `partitioner`.

    murmur2   the default of Java's clients; `murmur2_random` of librdkafka
    crc32     the default of librdkafka, called `consistent_random` there

Neither decides for rows without a key. crc32 treats an empty key as no key.
"""

import zlib
from array import array
from enum import StrEnum
from typing import Final

from cordwood.errors import ConfigError


class Partitioner(StrEnum):
    """The hash of the key."""

    MURMUR2 = "murmur2"
    CRC32 = "crc32"

    @classmethod
    def parse(cls, text: str) -> "Partitioner":
        """Raises `ConfigError` for an unknown name."""
        try:
            return cls(text.strip().lower())
        except ValueError:
            rule = "must be murmur2 (default of Java's clients) or crc32 (default of librdkafka)"
            raise ConfigError("partitioner", text, rule) from None

    @property
    def librdkafka_name(self) -> str:
        """The value of librdkafka's setting `partitioner` with the same effect."""
        return _LIBRDKAFKA[self]

    def crc_table(self) -> "array[int]":
        """The table for the kernel that chooses partitions; empty for murmur2."""
        return array("I", _CRC_TABLE if self is Partitioner.CRC32 else ())


_LIBRDKAFKA: Final = {
    Partitioner.MURMUR2: "murmur2_random",
    Partitioner.CRC32: "consistent_random",
}
# The table of CRC-32, derived from the checksums of single bytes, which start and end with all
# bits flipped.
_CRC_TABLE: Final = tuple(zlib.crc32(bytes([byte ^ 0xFF])) ^ 0xFF000000 for byte in range(256))
