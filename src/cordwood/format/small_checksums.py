"""The checksum of a small batch, for kernels: a call of the package `crc32c` would cost more.

`small_checksums.pxd` has the same two functions for the compiler. Compiled, they use the
instruction that most processors have for CRC-32C; where there is none, and in this form, the
table of `primitives` is used.
"""

from collections.abc import Sequence

from cordwood.primitives import crc32c_of


def small_crc32c(data: Sequence[int], at: int, end: int, table: Sequence[int]) -> int:
    """The CRC-32C of ``data[at:end]``; `table` is `CRC32C_TABLE`."""
    return crc32c_of(data, at, end, table)


def small_size_max(with_table: int) -> int:
    """Up to which size a batch is small; `with_table` if the table is used."""
    return with_table
