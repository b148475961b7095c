"""Compression of the records of a batch, by codec id, with limits.

    id  codec   written                                        read
    0   none    as is                                          as is
    1   gzip    one member                                     members one after another
    2   snappy  xerial blocks of 32 KiB                        xerial blocks, or raw
    3   lz4     one frame: independent 64 KiB blocks, no       one frame of any kind
                checksums, no content size
    4   zstd    one frame                                      frames one after another

The xerial framing that Java puts around snappy (librdkafka sends it raw):

    position  size  field
    0         8     magic       82 53 4E 41 50 50 59 00
    8         4     version     1
    12        4     compatible  1, the oldest version that can read it
    16        4     size        of the block that follows
    20        size  block       raw snappy
    ...             size and block again, to the end

Java refuses LZ4 frames with linked blocks, so none are written; they can be read.

Input is not trusted: a size in it is compared with the limit, and with the most that so few bytes
can hold, before memory is allocated. Errors of the libraries are raised as FormatError.

The libraries are imported where they are used: most processes need one codec or none, and a fast
start matters more than the microsecond of looking up a loaded module.
"""

import struct
import zlib
from collections.abc import Callable
from enum import IntEnum
from typing import Final

from cordwood.errors import (
    ConfigError,
    FormatError,
    LimitExceededError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from cordwood.format.zstd_frame import walk_zstd_frame
from cordwood.quantities import KIB

BytesLike = bytes | bytearray | memoryview


class Codec(IntEnum):
    """The low three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @classmethod
    def named(cls, name: str) -> "Codec":
        """The codec with this name in `compression.type`."""
        if name not in _NAMES:
            raise ConfigError("compression.type", name, f"must be one of {', '.join(_NAMES)}")
        return _NAMES[name]


_NAMES: Final = {
    "none": Codec.NONE,
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}

_GZIP_LEVEL_DEFAULT: Final = -1
_GZIP_LEVEL_MAX: Final = 9
_GZIP_WINDOW_BITS: Final = 16 + zlib.MAX_WBITS  # 16 selects the gzip wrapper in zlib
# Input is passed in windows that grow from this size, because zlib copies the input after the end
# of a member: passed as a whole, a batch of many tiny members would be copied once for each.
_GZIP_WINDOW_MIN: Final = 4 * KIB
_GZIP_WINDOW_MAX: Final = 1024 * KIB

_XERIAL_MAGIC: Final = b"\x82SNAPPY\x00"
_XERIAL_HEADER: Final = struct.Struct(">8sii")
_XERIAL_VERSION: Final = 1
_XERIAL_BLOCK_SIZE: Final = 32 * KIB
_BLOCK_SIZE: Final = struct.Struct(">i")
# Snappy's densest element expands 3 bytes to 64.
_SNAPPY_RATIO_MAX: Final = 22

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_LEVEL_FAST: Final = 9  # Kafka's default, which selects the fast compressor
_LZ4_LEVEL_MAX: Final = 17
_LZ4_LEVEL_HIGH_MIN: Final = 3  # the library's lowest high-compression level
_LZ4_FIRST_PIECE_MIN: Final = 64 * KIB
_LZ4_LIKELY_RATIO_MAX: Final = 8

_ZSTD_LEVEL_DEFAULT: Final = 3
_ZSTD_LEVEL_MIN: Final = -131072
_ZSTD_LEVEL_MAX: Final = 22
# The window that zstd's level 22 needs, and that decoders accept by default.
_ZSTD_WINDOW_SIZE_MAX: Final = 128 * 1024 * KIB


def compress(codec: int, data: BytesLike, level: int | None = None) -> bytes:
    """Compress the records of one batch. `level` is Kafka's; None is Kafka's default.

    An id that is no codec is an UnsupportedFormatError, a level the codec does not have is a
    ConfigError. Codecs without levels ignore it.
    """
    if codec not in _COMPRESSORS:
        raise UnsupportedFormatError("compression codec", codec)
    return _COMPRESSORS[codec](data, level)


def decompress(codec: int, data: BytesLike, *, limit: int) -> bytes:
    """Decompress the records of one batch, to at most `limit` bytes.

    Raises FormatError for bytes that are not of this codec, LimitExceededError when more than
    `limit` bytes come out, UnsupportedFormatError for an id that is no codec.
    """
    assert limit >= 0, limit
    if codec not in _DECOMPRESSORS:
        raise UnsupportedFormatError("compression codec", codec)
    return _DECOMPRESSORS[codec](data, limit)


# --- none -----------------------------------------------------------------------------------


def _keep(data: BytesLike, level: int | None) -> bytes:
    return bytes(data)


def _keep_within(data: BytesLike, limit: int) -> bytes:
    _check_limit(len(data), limit)
    return bytes(data)


# --- gzip -----------------------------------------------------------------------------------


def _gzip_compress(data: BytesLike, level: int | None) -> bytes:
    level = _GZIP_LEVEL_DEFAULT if level is None else level
    if level != _GZIP_LEVEL_DEFAULT and not 1 <= level <= _GZIP_LEVEL_MAX:
        raise ConfigError("compression.gzip.level", level, "must be -1, or 1 to 9")
    return zlib.compress(data, level, _GZIP_WINDOW_BITS)


def _gzip_decompress(data: BytesLike, limit: int) -> bytes:
    if not data:
        raise TruncatedInputError("gzip stream", needed=1, got=0)
    view = memoryview(data)
    pieces: list[bytes] = []
    size = position = 0
    while position < len(view):
        member = zlib.decompressobj(_GZIP_WINDOW_BITS)
        window_size = _GZIP_WINDOW_MIN
        while not member.eof:
            if position == len(view):
                raise FormatError("gzip stream ends within a member", position=position)
            window = view[position : position + window_size]
            try:
                # One byte more than allowed distinguishes "too much" from "just enough". Input
                # stays unconsumed only if that byte was produced, and then decompression stops.
                piece = member.decompress(window, limit - size + 1)
            except zlib.error as error:
                raise FormatError(f"bad gzip stream: {error}", position=position) from error
            size += len(piece)
            _check_limit(size, limit)
            pieces.append(piece)
            position += len(window) - len(member.unused_data)
            window_size = min(2 * window_size, _GZIP_WINDOW_MAX)
    return _joined(pieces)


# --- snappy ---------------------------------------------------------------------------------


def _snappy_compress(data: BytesLike, level: int | None) -> bytes:
    from cramjam import snappy

    view = memoryview(data)
    parts = [_XERIAL_HEADER.pack(_XERIAL_MAGIC, _XERIAL_VERSION, _XERIAL_VERSION)]
    for start in range(0, len(view), _XERIAL_BLOCK_SIZE):
        block = bytes(snappy.compress_raw(view[start : start + _XERIAL_BLOCK_SIZE]))
        parts.append(_BLOCK_SIZE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: BytesLike, limit: int) -> bytes:
    view = memoryview(data)
    # No raw stream starts with these bytes: its first element would copy from before its start.
    if not _is_xerial(view, 0):
        return _snappy_decompress_block(view, limit, 0, 0)
    pieces: list[bytes] = []
    size = position = 0
    while position < len(view):
        if _is_xerial(view, position):
            # Java accepts several streams; the magic cannot be a size, because it is negative.
            position = _after_xerial_header(view, position)
            continue
        block_start = position + _BLOCK_SIZE.size
        if block_start > len(view):
            raise TruncatedInputError(
                "snappy block size",
                needed=_BLOCK_SIZE.size,
                got=len(view) - position,
                position=position,
            )
        (block_size,) = _BLOCK_SIZE.unpack_from(view, position)
        if block_size < 0:
            raise FormatError(f"snappy block of {block_size} bytes", position=position)
        if block_size > len(view) - block_start:
            raise TruncatedInputError(
                "snappy block", needed=block_size, got=len(view) - block_start, position=position
            )
        block = view[block_start : block_start + block_size]
        pieces.append(_snappy_decompress_block(block, limit, size, block_start))
        size += len(pieces[-1])
        position = block_start + block_size
    return _joined(pieces)


def _is_xerial(view: memoryview, position: int) -> bool:
    return bytes(view[position : position + len(_XERIAL_MAGIC)]) == _XERIAL_MAGIC


def _after_xerial_header(view: memoryview, position: int) -> int:
    end = position + _XERIAL_HEADER.size
    if end > len(view):
        raise TruncatedInputError(
            "xerial header", needed=_XERIAL_HEADER.size, got=len(view) - position, position=position
        )
    _, version, _ = _XERIAL_HEADER.unpack_from(view, position)
    # Some producers write 1 in the wrong byte order. Java only refuses versions below 1.
    if version < _XERIAL_VERSION:
        raise UnsupportedFormatError("xerial version", version, position=position)
    return end


def _snappy_decompress_block(
    block: memoryview, limit: int, size_before: int, position: int
) -> bytes:
    import cramjam

    try:
        size = cramjam.snappy.decompress_raw_len(block)
        _check_limit(size_before + size, limit)
        if size > _SNAPPY_RATIO_MAX * len(block):
            raise FormatError(
                f"snappy block of {len(block)} bytes cannot hold {size}", position=position
            )
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise FormatError(f"bad snappy block: {error}", position=position) from error


# --- lz4 ------------------------------------------------------------------------------------


def _lz4_compress(data: BytesLike, level: int | None) -> bytes:
    from lz4 import frame

    level = _LZ4_LEVEL_FAST if level is None else level
    if not 1 <= level <= _LZ4_LEVEL_MAX:
        raise ConfigError("compression.lz4.level", level, "must be 1 to 17")
    library_level = 0 if level == _LZ4_LEVEL_FAST else max(level, _LZ4_LEVEL_HIGH_MIN)
    compressed: bytes = frame.compress(
        data,
        compression_level=library_level,
        block_size=frame.BLOCKSIZE_MAX64KB,
        block_linked=False,
        content_checksum=False,
        block_checksum=False,
        store_size=False,
    )
    return compressed


def _lz4_decompress(data: BytesLike, limit: int) -> bytes:
    from lz4 import frame

    if data[: len(_LZ4_MAGIC)] != _LZ4_MAGIC:
        raise FormatError("no LZ4 frame starts here")
    decompressor = frame.LZ4FrameDecompressor()
    pieces: list[bytes] = []
    size = 0
    # The library allocates the maximum output, so a likely size is requested first.
    piece_size = max(_LZ4_FIRST_PIECE_MIN, _LZ4_LIKELY_RATIO_MAX * len(data))
    source: BytesLike = data
    while not decompressor.eof:
        try:
            piece = decompressor.decompress(source, max_length=min(piece_size, limit - size + 1))
        except RuntimeError as error:
            raise FormatError(f"bad LZ4 frame: {error}") from error
        size += len(piece)
        _check_limit(size, limit)
        pieces.append(piece)
        if not decompressor.eof and (decompressor.needs_input or not piece):
            raise FormatError("LZ4 frame ends before its end mark", position=len(data))
        source = b""
        piece_size *= 2
    if decompressor.unused_data:
        extra = len(decompressor.unused_data)
        raise FormatError(f"{extra} bytes after the LZ4 frame", position=len(data) - extra)
    return _joined(pieces)


# --- zstd -----------------------------------------------------------------------------------


def _zstd_compress(data: BytesLike, level: int | None) -> bytes:
    import zstandard

    level = _ZSTD_LEVEL_DEFAULT if level is None else level
    if not _ZSTD_LEVEL_MIN <= level <= _ZSTD_LEVEL_MAX:
        rule = f"must be {_ZSTD_LEVEL_MIN} to {_ZSTD_LEVEL_MAX}"
        raise ConfigError("compression.zstd.level", level, rule)
    return zstandard.ZstdCompressor(level=level).compress(data)


def _zstd_decompress(data: BytesLike, limit: int) -> bytes:
    if not data:
        raise TruncatedInputError("zstd stream", needed=1, got=0)
    view = memoryview(data)
    pieces: list[bytes] = []
    size = position = 0
    while position < len(view):
        frame = walk_zstd_frame(view, position)
        if not frame.is_skippable:
            piece = _zstd_decompress_frame(
                view[position : frame.end], frame.content_size_max, limit, size, position
            )
            pieces.append(piece)
            size += len(piece)
        position = frame.end
    return _joined(pieces)


def _zstd_decompress_frame(
    frame: memoryview, size_max: int, limit: int, size_before: int, position: int
) -> bytes:
    import zstandard

    decompressor = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_SIZE_MAX)
    # One byte more than expected distinguishes "too much" from "just enough", and makes the library
    # continue to the end of the frame, where it verifies the checksum.
    wanted = min(size_max, limit - size_before) + 1
    try:
        piece = decompressor.stream_reader(frame).read(wanted)
    except zstandard.ZstdError as error:
        raise FormatError(f"bad zstd frame: {error}", position=position) from error
    _check_limit(size_before + len(piece), limit)
    return piece


# --- all ------------------------------------------------------------------------------------


def _check_limit(size: int, limit: int) -> None:
    if size > limit:
        raise LimitExceededError("decompressed size", size=size, limit=limit)


def _joined(pieces: list[bytes]) -> bytes:
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


_COMPRESSORS: Final[dict[int, Callable[[BytesLike, int | None], bytes]]] = {
    Codec.NONE: _keep,
    Codec.GZIP: _gzip_compress,
    Codec.SNAPPY: _snappy_compress,
    Codec.LZ4: _lz4_compress,
    Codec.ZSTD: _zstd_compress,
}
_DECOMPRESSORS: Final[dict[int, Callable[[BytesLike, int], bytes]]] = {
    Codec.NONE: _keep_within,
    Codec.GZIP: _gzip_decompress,
    Codec.SNAPPY: _snappy_decompress,
    Codec.LZ4: _lz4_decompress,
    Codec.ZSTD: _zstd_decompress,
}
