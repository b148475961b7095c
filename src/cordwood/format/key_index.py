"""The `.keyindex` file of a sealed segment: which batches may contain a key. Cordwood's own.

    position  size   field
    0         8      magic and version      "cordwki" and the byte 1
    8         8      log size               bytes of the log file it was built from
    16        8      entry count
    24        4      reserved               0
    28        4      crc                    crc32c of bytes 0 to 28, unsigned
    32        4096   page                   all but the last are full
    ...

    page
    0         4      crc                    crc32c of the rest of the page, unsigned
    4         12     entry                  up to 341 of them
    ...

    entry
    0         8      hash of the key        unsigned; see `key_hashes`
    8         4      position               of the batch in the log file

Integers are big-endian. Entries are sorted by hash, then by position, and each pair occurs
once. Two keys may share a hash: a batch in the index may not contain the key, but a batch that is
not in the index never does. Records without a key and control records are not indexed.

A search reads a few pages and verifies each of them: a damaged page makes the index unusable, but
cannot hide a key. The file is derived: if it is missing, damaged, or built from a log file of
another size, it is built again.
"""

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from cordwood.checksums import crc32c
from cordwood.errors import ChecksumMismatchError, FormatError, TruncatedInputError
from cordwood.format import key_hashes
from cordwood.quantities import FilePosition

BytesLike = bytes | bytearray | memoryview

HEADER: Final = struct.Struct(">8sQQ4xI")
HEADER_SIZE: Final = 32
PAGE_SIZE: Final = 4096
ENTRY_SIZE: Final = 12
ENTRIES_PER_PAGE: Final = 341
_PAGE_CRC_SIZE: Final = 4
_CRC_POSITION: Final = 28
_MAGIC: Final = b"cordwki\x01"
_HASH_BITS: Final = 64

assert HEADER.size == HEADER_SIZE
assert _PAGE_CRC_SIZE + ENTRIES_PER_PAGE * ENTRY_SIZE == PAGE_SIZE


def encode_header(*, log_size: int, entry_count: int) -> bytes:
    start = HEADER.pack(_MAGIC, log_size, entry_count, 0)[:_CRC_POSITION]
    return start + crc32c(start).to_bytes(4, "big")


def encode_pages(entries: bytes | bytearray | memoryview) -> bytes:
    """Sorted entries as pages; all are full if the number of entries is a multiple of 341."""
    pages = bytearray()
    view = memoryview(entries)
    for at in range(0, len(view), ENTRIES_PER_PAGE * ENTRY_SIZE):
        piece = view[at : at + ENTRIES_PER_PAGE * ENTRY_SIZE]
        pages += crc32c(piece).to_bytes(4, "big")
        pages += piece
    return bytes(pages)


class KeyIndexHeader(NamedTuple):
    """The size of the log file that the index was built from, and the number of entries."""

    log_size: int
    entry_count: int

    @property
    def page_count(self) -> int:
        return -(-self.entry_count // ENTRIES_PER_PAGE)

    @property
    def file_size(self) -> int:
        return HEADER_SIZE + self.page_count * _PAGE_CRC_SIZE + self.entry_count * ENTRY_SIZE


def decode_header(data: BytesLike) -> KeyIndexHeader:
    """The first 32 bytes."""
    if len(data) < HEADER_SIZE:
        raise TruncatedInputError("key index header", needed=HEADER_SIZE, got=len(data))
    magic, log_size, entry_count, stored = HEADER.unpack_from(data)
    computed = crc32c(data[:_CRC_POSITION])
    if magic != _MAGIC:
        raise FormatError(f"not a key index of this version: it starts with {magic!r}")
    if stored != computed:
        raise ChecksumMismatchError(stored=stored, computed=computed, position=_CRC_POSITION)
    return KeyIndexHeader(log_size, entry_count)


def decode_page(page: BytesLike, position: int) -> memoryview:
    """The entries of a page, verified; `position` is that of the page in the file."""
    entries = memoryview(page)[_PAGE_CRC_SIZE:]
    stored = int.from_bytes(page[:_PAGE_CRC_SIZE], "big")
    computed = crc32c(entries)
    if stored != computed:
        raise ChecksumMismatchError(stored=stored, computed=computed, position=position)
    if len(entries) % ENTRY_SIZE:
        got = len(entries) % ENTRY_SIZE
        raise TruncatedInputError(
            "entry of a key index", needed=ENTRY_SIZE, got=got, position=position
        )
    return entries


class KeyIndexPages:
    """A key index as bytes. Raises `FormatError` if it is damaged."""

    def __init__(self, data: memoryview) -> None:
        header = decode_header(data)
        self.log_size, self.entry_count = header
        self._data = data
        self._pages = header.page_count
        if len(data) != header.file_size:
            raise TruncatedInputError("key index", needed=header.file_size, got=len(data))

    def batches_of(self, key: bytes) -> Iterator[FilePosition]:
        """Positions of the batches that may contain `key`, in order."""
        wanted = key_hashes.key_hash(key)
        page = self._first_page(wanted)
        while page < self._pages:
            start, count = self._entries(page)
            index = key_hashes.first_entry_at(self._data, start, count, wanted)
            for at in range(start + index * ENTRY_SIZE, start + count * ENTRY_SIZE, ENTRY_SIZE):
                if self._hash_at(at) != wanted:
                    return
                yield FilePosition(int.from_bytes(self._data[at + 8 : at + 12], "big"))
            page += 1

    def check(self) -> None:
        """Verify every page; raises like a search."""
        for page in range(self._pages):
            self._entries(page)

    def _first_page(self, wanted: int) -> int:
        """The last page that starts with a smaller hash; the first page if none does.

        Hashes are spread evenly, so the position of the page can be estimated closely.
        """
        low, high = 0, self._pages  # the answer is in [low, high)
        guess = (wanted * self._pages) >> _HASH_BITS
        step = 1
        while high - low > 1:
            middle = min(max(guess, low + 1), high - 1)
            start, _ = self._entries(middle)
            if self._hash_at(start) < wanted:
                low, guess = middle, middle + step
            else:
                high, guess = middle, middle - step
            step *= 2
        return low

    def _entries(self, page: int) -> tuple[int, int]:
        """The position and number of the entries of a page, verified."""
        at = HEADER_SIZE + page * PAGE_SIZE
        entries = decode_page(self._data[at : at + PAGE_SIZE], at)
        return at + _PAGE_CRC_SIZE, len(entries) // ENTRY_SIZE

    def _hash_at(self, at: int) -> int:
        return int.from_bytes(self._data[at : at + 8], "big")
