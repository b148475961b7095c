"""How the key of a row decides its partition, where nothing else does: the option `partitioner`.

    murmur2   as Java's clients do by default, and librdkafka with `murmur2_random`
    crc32     as librdkafka does by default, which it calls `consistent_random`

Both leave the choice open for rows without a key. crc32 also takes an empty key for none.
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
        """Raises `ConfigError` for anything else."""
        try:
            return cls(text.strip().lower())
        except ValueError:
            rule = "must be murmur2, as Java's clients hash, or crc32, as librdkafka does"
            raise ConfigError("partitioner", text, rule) from None

    @property
    def librdkafka_name(self) -> str:
        """What librdkafka's setting `partitioner` must be to do the same."""
        return _LIBRDKAFKA[self]

    def crc_table(self) -> "array[int]":
        """What the kernel that chooses partitions hashes by; empty for murmur2."""
        return array("I", _CRC_TABLE if self is Partitioner.CRC32 else ())


_LIBRDKAFKA: Final = {
    Partitioner.MURMUR2: "murmur2_random",
    Partitioner.CRC32: "consistent_random",
}
# What CRC-32 makes of each byte: read off the checksums of single bytes, which begin and end
# with all bits flipped.
_CRC_TABLE: Final = tuple(zlib.crc32(bytes([byte ^ 0xFF])) ^ 0xFF000000 for byte in range(256))
