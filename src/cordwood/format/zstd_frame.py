"""The structure of a zstd frame: its end and its largest content, without decompressing.

    size       field
    4          magic           28 B5 2F FD
    2 to 14    frame header    with or without the content size
               block header and block, repeated up to the last block
    4          checksum        if the frame header says so

A block header is 3 bytes, little-endian: bit 0 is set on the last block, bits 1 and 2 are the
type (0 raw, 1 one byte repeated, 2 compressed, 3 reserved), the others the size. No block
holds more than 128 KiB. A skippable frame is its magic (5? 2A 4D 18), a 4-byte size, and
that many bytes without meaning here.

Walking the block headers detects a truncated frame, whose first part the library would return
without an error, and bounds the output before memory is allocated.
"""

import struct
from typing import Final

from cordwood.errors import FormatError, TruncatedInputError
from cordwood.quantities import KIB
from cordwood.value_class import dataclass

_SKIPPABLE_MAGIC: Final = 0x184D2A50  # and the fifteen after it
_SKIPPABLE_HEADER: Final = struct.Struct("<II")
_BLOCK_HEADER_SIZE: Final = 3
_BLOCK_SIZE_MAX: Final = 128 * KIB
_ONE_BYTE_REPEATED: Final = 1
_COMPRESSED: Final = 2
_RESERVED: Final = 3
_CHECKSUM_SIZE: Final = 4
_CONTENT_SIZE_UNKNOWN: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class ZstdFrame:
    """`end` is the position after the frame; it holds at most `content_size_max` bytes."""

    end: int
    content_size_max: int
    is_skippable: bool = False


def walk_zstd_frame(view: memoryview, position: int = 0) -> ZstdFrame:
    """Walk the frame that starts at `position`; FormatError if it is not complete."""
    header_size = _SKIPPABLE_HEADER.size
    _check_room(view, position, position + header_size)  # no frame of any kind is shorter
    magic, skipped_size = _SKIPPABLE_HEADER.unpack_from(view, position)
    if magic & ~0xF == _SKIPPABLE_MAGIC:
        end = position + header_size + skipped_size
        _check_room(view, position, end)
        return ZstdFrame(end=end, content_size_max=0, is_skippable=True)
    return _walk_blocks(view, position)


def _walk_blocks(view: memoryview, position: int) -> ZstdFrame:
    # Imported here because most processes never see a zstd frame.
    import zstandard

    frame = view[position:]
    try:
        parameters = zstandard.get_frame_parameters(frame)
        at = position + zstandard.frame_header_size(frame)
    except zstandard.ZstdError as error:
        raise FormatError(f"bad zstd frame header: {error}", position=position) from error
    size_max = 0
    is_last = False
    while not is_last:
        if len(view) - at < _BLOCK_HEADER_SIZE:
            raise FormatError("zstd frame ends before its last block", position=min(at, len(view)))
        header = int.from_bytes(view[at : at + _BLOCK_HEADER_SIZE], "little")
        is_last = bool(header & 1)
        kind, block_size = (header >> 1) & 3, header >> 3
        if kind == _RESERVED:
            raise FormatError("zstd block of a reserved type", position=at)
        if block_size > _BLOCK_SIZE_MAX:
            raise FormatError(f"zstd block of {block_size} bytes", position=at)
        size_max += _BLOCK_SIZE_MAX if kind == _COMPRESSED else block_size
        at += _BLOCK_HEADER_SIZE + (1 if kind == _ONE_BYTE_REPEATED else block_size)
    end = at + _CHECKSUM_SIZE if parameters.has_checksum else at
    _check_room(view, position, end)
    if parameters.content_size == _CONTENT_SIZE_UNKNOWN:
        return ZstdFrame(end=end, content_size_max=size_max)
    if parameters.content_size > size_max:
        raise FormatError(
            f"zstd frame claims {parameters.content_size} bytes, but its blocks hold at most "
            f"{size_max}",
            position=position,
        )
    return ZstdFrame(end=end, content_size_max=parameters.content_size)


def _check_room(view: memoryview, position: int, end: int) -> None:
    if end > len(view):
        raise TruncatedInputError(
            "zstd frame", needed=end - position, got=len(view) - position, position=position
        )
