import gzip
import random
import struct
import tracemalloc
import warnings
import zlib
from collections.abc import Callable

import cramjam
import lz4.frame
import pytest
import zstandard

from cordwood.errors import (
    ConfigError,
    FormatError,
    LimitExceededError,
    TruncatedInputError,
    UnsupportedFormatError,
)
from cordwood.format.compression import Codec, compress, decompress

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # theirs, about how they load their own resources
    import aiokafka.codec
    import kafka.codec

MIB = 1024 * 1024
COMPRESSING = [codec for codec in Codec if codec is not Codec.NONE]
XERIAL_HEADER = bytes.fromhex("82534e4150505900 00000001 00000001")


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


PAYLOADS = {
    "one byte": b"x",
    "text": b"the quick brown fox " * 20,
    "one snappy block": noise(100) * 327 + noise(68),
    "one byte more": noise(100) * 327 + noise(69),
    "one lz4 block": noise(64) * 1024,
    "zeros": bytes(3 * MIB),
    "noise": noise(300_000),
}

Transform = Callable[[bytes], bytes]
OTHERS: dict[str, tuple[Codec, Transform, Transform]] = {
    "kafka-python gzip": (Codec.GZIP, kafka.codec.gzip_encode, kafka.codec.gzip_decode),
    "kafka-python lz4": (Codec.LZ4, kafka.codec.lz4_encode, kafka.codec.lz4_decode),
    "kafka-python zstd": (Codec.ZSTD, kafka.codec.zstd_encode, kafka.codec.zstd_decode),
    "aiokafka gzip": (Codec.GZIP, aiokafka.codec.gzip_encode, aiokafka.codec.gzip_decode),
    "aiokafka snappy": (Codec.SNAPPY, aiokafka.codec.snappy_encode, aiokafka.codec.snappy_decode),
    "aiokafka raw snappy": (
        Codec.SNAPPY,
        lambda data: aiokafka.codec.snappy_encode(data, xerial_compatible=False),
        aiokafka.codec.snappy_decode,
    ),
    "aiokafka lz4": (Codec.LZ4, aiokafka.codec.lz4_encode, aiokafka.codec.lz4_decode),
    "aiokafka zstd": (Codec.ZSTD, aiokafka.codec.zstd_encode, aiokafka.codec.zstd_decode),
}


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize("codec", Codec)
def test_what_was_compressed_comes_back(codec: Codec, payload: bytes) -> None:
    compressed = compress(codec, payload)

    assert decompress(codec, compressed, limit=len(payload)) == payload


@pytest.mark.parametrize("codec", Codec)
def test_no_bytes_come_back_as_no_bytes(codec: Codec) -> None:
    assert decompress(codec, compress(codec, b""), limit=0) == b""


@pytest.mark.parametrize("codec", Codec)
def test_any_bytes_like_object_is_taken(codec: Codec) -> None:
    payload = PAYLOADS["text"]
    compressed = compress(codec, memoryview(b"__" + payload)[2:])

    assert compress(codec, bytearray(payload)) == compressed
    for data in (bytearray(compressed), memoryview(b"__" + compressed)[2:]):
        assert decompress(codec, data, limit=MIB) == payload


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize(("codec", "encode", "decode"), OTHERS.values(), ids=OTHERS)
def test_other_clients_and_we_read_each_other(
    codec: Codec, encode: Transform, decode: Transform, payload: bytes
) -> None:
    theirs = encode(payload)
    ours = compress(codec, payload)

    assert decompress(codec, theirs, limit=len(payload)) == payload
    assert decode(ours) == payload


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("none", Codec.NONE),
        ("uncompressed", Codec.NONE),
        ("gzip", Codec.GZIP),
        ("snappy", Codec.SNAPPY),
        ("lz4", Codec.LZ4),
        ("zstd", Codec.ZSTD),
    ],
)
def test_codecs_have_the_names_of_compression_type(name: str, codec: Codec) -> None:
    assert Codec.named(name) is codec


@pytest.mark.parametrize("name", ["", "GZIP", "producer", "brotli"])
def test_any_other_name_is_a_config_error(name: str) -> None:
    with pytest.raises(ConfigError, match=r"compression\.type = .*: must be one of"):
        Codec.named(name)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_an_id_without_a_codec_is_unsupported(codec: int) -> None:
    with pytest.raises(UnsupportedFormatError, match=f"compression codec: {codec}"):
        compress(codec, b"x")
    with pytest.raises(UnsupportedFormatError, match=f"compression codec: {codec}"):
        decompress(codec, b"x", limit=1)


# --- limits ---------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
@pytest.mark.parametrize("codec", Codec)
def test_one_byte_over_the_limit_is_too_much(codec: Codec, payload: bytes) -> None:
    compressed = compress(codec, payload)

    with pytest.raises(LimitExceededError):
        decompress(codec, compressed, limit=len(payload) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_bomb_costs_no_more_memory_than_the_limit(codec: Codec) -> None:
    bomb = compress(codec, bytes(64 * MIB))
    decompress(codec, compress(codec, b"x"), limit=1)  # the library is loaded outside the count

    tracemalloc.start()
    with pytest.raises(LimitExceededError):
        decompress(codec, bomb, limit=2 * MIB)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 * MIB


def test_a_zstd_bomb_without_a_content_size_is_bounded_too() -> None:
    bomb = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(64 * MIB))

    with pytest.raises(LimitExceededError):
        decompress(Codec.ZSTD, bomb, limit=2 * MIB)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (Codec.SNAPPY, bytes.fromhex("ffffffff0f") + bytes(10)),
        (Codec.SNAPPY, XERIAL_HEADER + bytes.fromhex("00000006 ffffffff0f00")),
        (Codec.ZSTD, bytes.fromhex("28b52ffd e0 ffffffffffffff0f 010000")),
        (Codec.LZ4, bytes.fromhex("04224d18 68 40 ffffffffffffff0f 00 00000000")),
    ],
)
def test_an_announced_size_that_cannot_be_takes_no_memory(codec: Codec, data: bytes) -> None:
    tracemalloc.start()
    with pytest.raises(FormatError):
        decompress(codec, data, limit=2**40)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 8 * MIB


# --- damage ---------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", COMPRESSING)
def test_nothing_is_not_a_compressed_stream(codec: Codec) -> None:
    with pytest.raises(FormatError):
        decompress(codec, b"", limit=MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_stream_cut_anywhere_is_refused(codec: Codec) -> None:
    compressed = compress(codec, noise(700))
    # A xerial stream has no end mark: without its last block it is a shorter stream.
    whole = {len(XERIAL_HEADER)} if codec is Codec.SNAPPY else set()

    for size in set(range(len(compressed))) - whole:
        with pytest.raises(FormatError):
            decompress(codec, compressed[:size], limit=MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_bytes_behind_the_stream_are_refused(codec: Codec) -> None:
    compressed = compress(codec, PAYLOADS["text"])

    with pytest.raises(FormatError):
        decompress(codec, compressed + b"more", limit=MIB)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_another_codecs_stream_is_refused(codec: Codec) -> None:
    for other in COMPRESSING:
        if other is not codec:
            with pytest.raises(FormatError):
                decompress(codec, compress(other, PAYLOADS["text"]), limit=MIB)


# --- gzip -----------------------------------------------------------------------------------


def test_gzip_members_are_read_one_after_another() -> None:
    data = b"".join(gzip.compress(b"%d," % number) for number in range(1000))

    decompressed = decompress(Codec.GZIP, data, limit=MIB)

    assert decompressed == b"".join(b"%d," % number for number in range(1000))


def test_the_limit_counts_all_members() -> None:
    data = gzip.compress(bytes(600)) + gzip.compress(bytes(600))

    assert decompress(Codec.GZIP, data, limit=1200) == bytes(1200)
    with pytest.raises(LimitExceededError):
        decompress(Codec.GZIP, data, limit=1199)


def test_a_gzip_checksum_is_verified() -> None:
    data = bytearray(compress(Codec.GZIP, b"hello"))
    data[-5] ^= 1

    with pytest.raises(FormatError, match="bad gzip stream"):
        decompress(Codec.GZIP, data, limit=MIB)


def test_a_zlib_stream_is_no_gzip_stream() -> None:
    with pytest.raises(FormatError, match="bad gzip stream"):
        decompress(Codec.GZIP, zlib.compress(b"hello"), limit=MIB)


# --- snappy ---------------------------------------------------------------------------------


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    payload = noise(70_000)

    compressed = compress(Codec.SNAPPY, payload)

    assert compressed[:16] == XERIAL_HEADER
    position, sizes = 16, []
    while position < len(compressed):
        (size,) = struct.unpack_from(">i", compressed, position)
        block = compressed[position + 4 : position + 4 + size]
        sizes.append(len(bytes(cramjam.snappy.decompress_raw(block))))
        position += 4 + size
    assert sizes == [32768, 32768, 70_000 - 65536]


def test_xerial_streams_are_read_one_after_another() -> None:
    data = compress(Codec.SNAPPY, b"one ") + compress(Codec.SNAPPY, b"two")

    assert decompress(Codec.SNAPPY, data, limit=7) == b"one two"
    with pytest.raises(LimitExceededError):
        decompress(Codec.SNAPPY, data, limit=6)


def test_a_xerial_version_in_the_wrong_byte_order_is_read() -> None:
    data = bytearray(compress(Codec.SNAPPY, b"hello"))
    data[8:16] = bytes.fromhex("01000000 01000000")

    assert decompress(Codec.SNAPPY, data, limit=5) == b"hello"


@pytest.mark.parametrize("version", ["00000000", "ffffffff"])
def test_a_xerial_version_before_1_is_unsupported(version: str) -> None:
    data = XERIAL_HEADER[:8] + bytes.fromhex(version) + XERIAL_HEADER[12:]

    with pytest.raises(UnsupportedFormatError, match="xerial version"):
        decompress(Codec.SNAPPY, data, limit=MIB)


@pytest.mark.parametrize("size", ["7fffffff", "00000005"])
def test_a_xerial_block_larger_than_the_rest_is_truncated(size: str) -> None:
    with pytest.raises(TruncatedInputError, match="at byte 16: snappy block needs"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + bytes.fromhex(size) + bytes(4), limit=MIB)


@pytest.mark.parametrize("size", ["ffffffff", "80000000"])
def test_a_xerial_block_of_negative_size_is_refused(size: str) -> None:
    with pytest.raises(FormatError, match=r"at byte 16: snappy block of -\d+ bytes"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + bytes.fromhex(size), limit=MIB)


def test_an_empty_xerial_block_is_refused() -> None:
    with pytest.raises(FormatError, match="bad snappy block"):
        decompress(Codec.SNAPPY, XERIAL_HEADER + bytes(4), limit=MIB)


def test_the_densest_snappy_there_is_is_read() -> None:
    # One literal byte, then copies of 64 bytes from one byte back, three bytes each.
    copies = 5000
    size = 1 + 64 * copies
    length = bytearray()
    rest = size
    while rest >= 0x80:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    data = bytes(length) + b"\x00a" + bytes.fromhex("fe0100") * copies

    assert decompress(Codec.SNAPPY, data, limit=size) == b"a" * size


# --- lz4 ------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", [None, 1, 3, 9, 12, 17])
@pytest.mark.parametrize("payload", [b"", *PAYLOADS.values()], ids=["nothing", *PAYLOADS])
def test_lz4_frames_have_independent_64_kib_blocks_and_nothing_else(
    payload: bytes, level: int | None
) -> None:
    frame = compress(Codec.LZ4, payload[:200_000], level)

    assert frame[:4] == bytes.fromhex("04224d18")
    flags, descriptor = frame[4], frame[5]
    assert flags >> 6 == 1, "version 01"
    assert flags & 0x20, "independent blocks"
    assert flags & 0x1F == 0, "no block checksum, content size, content checksum or dictionary"
    assert descriptor == 4 << 4, "64 KiB"
    assert frame[-4:] == bytes(4), "end mark"


@pytest.mark.parametrize("block_linked", [False, True])
@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("store_size", [False, True])
def test_lz4_frames_of_any_kind_are_read(
    block_linked: bool, checksums: bool, store_size: bool
) -> None:
    payload = noise(1000) * 500
    frame = lz4.frame.compress(
        payload,
        block_linked=block_linked,
        block_checksum=checksums,
        content_checksum=checksums,
        store_size=store_size,
    )

    assert decompress(Codec.LZ4, frame, limit=len(payload)) == payload


def test_a_skippable_frame_is_no_lz4_frame() -> None:
    with pytest.raises(FormatError, match="no LZ4 frame starts here"):
        decompress(Codec.LZ4, bytes.fromhex("502a4d18 00000000"), limit=MIB)


def test_an_announced_lz4_content_size_is_not_believed() -> None:
    frame = bytearray(lz4.frame.compress(b"hello", store_size=True))
    frame[6:14] = (2**60).to_bytes(8, "little")

    for header_checksum in range(256):  # one of them is right
        frame[14] = header_checksum
        with pytest.raises(FormatError, match="bad LZ4 frame"):
            decompress(Codec.LZ4, frame, limit=2**62)


def test_kafkas_lz4_level_9_is_the_fast_compressor() -> None:
    payload = PAYLOADS["text"] + noise(500) * 9

    assert compress(Codec.LZ4, payload, 9) == compress(Codec.LZ4, payload)


# --- zstd -----------------------------------------------------------------------------------


def test_zstd_frames_are_read_one_after_another() -> None:
    streamed = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    skippable = bytes.fromhex("502a4d18 03000000") + b"abc"
    data = compress(Codec.ZSTD, b"one ") + skippable + streamed.compress(b"two")

    assert decompress(Codec.ZSTD, data, limit=7) == b"one two"
    with pytest.raises(LimitExceededError):
        decompress(Codec.ZSTD, data, limit=6)


def test_a_zstd_checksum_is_verified() -> None:
    frame = bytearray(zstandard.ZstdCompressor(write_checksum=True).compress(b"hello"))
    frame[-1] ^= 1

    with pytest.raises(FormatError, match="bad zstd frame"):
        decompress(Codec.ZSTD, frame, limit=MIB)


def test_a_zstd_window_beyond_128_mib_is_refused() -> None:
    # Descriptor 0x00: no content size; window byte 0x90: 2 to the power of 28.
    frame = bytes.fromhex("28b52ffd 00 90 0b0000") + b"a"

    with pytest.raises(FormatError, match="bad zstd frame"):
        decompress(Codec.ZSTD, frame, limit=MIB)


# --- levels ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        *((Codec.GZIP, level) for level in (-1, 1, 9)),
        *((Codec.SNAPPY, level) for level in (-5, 0, 99)),
        *((Codec.LZ4, level) for level in (1, 2, 8, 9, 10, 17)),
        *((Codec.ZSTD, level) for level in (-131072, -1, 0, 1, 3, 22)),
    ],
)
def test_every_level_comes_back(codec: Codec, level: int) -> None:
    payload = PAYLOADS["text"] + noise(500)

    assert decompress(codec, compress(codec, payload, level), limit=MIB) == payload


@pytest.mark.parametrize(
    ("codec", "level", "key"),
    [
        *((Codec.GZIP, level, "compression.gzip.level") for level in (-2, 0, 10)),
        *((Codec.LZ4, level, "compression.lz4.level") for level in (-1, 0, 18)),
        *((Codec.ZSTD, level, "compression.zstd.level") for level in (-131073, 23)),
    ],
)
def test_a_level_the_codec_does_not_have_is_a_config_error(
    codec: Codec, level: int, key: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        compress(codec, b"x", level)

    assert raised.value.key == key
