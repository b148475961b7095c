import pytest
import zstandard

from cordwood.errors import FormatError, TruncatedInputError
from cordwood.format.zstd_frame import ZstdFrame, walk_zstd_frame

CONTENT = bytes(range(256)) * 2000
KIB = 1024


def framed(*, content_size: bool, checksum: bool) -> bytes:
    compressor = zstandard.ZstdCompressor(write_content_size=content_size, write_checksum=checksum)
    return compressor.compress(CONTENT)


@pytest.mark.parametrize("checksum", [False, True])
@pytest.mark.parametrize("content_size", [False, True])
def test_a_frame_is_outlined_wherever_it_lies(content_size: bool, checksum: bool) -> None:
    data = framed(content_size=content_size, checksum=checksum)

    frame = walk_zstd_frame(memoryview(b"before" + data + b"behind"), 6)

    assert frame.end == 6 + len(data)
    assert not frame.is_skippable


def test_an_announced_content_size_is_the_bound() -> None:
    data = framed(content_size=True, checksum=False)

    frame = walk_zstd_frame(memoryview(data))

    assert frame == ZstdFrame(end=len(data), content_size_max=len(CONTENT))


def test_without_one_the_blocks_are_the_bound() -> None:
    data = framed(content_size=False, checksum=False)

    frame = walk_zstd_frame(memoryview(data))

    assert len(CONTENT) <= frame.content_size_max <= len(CONTENT) + 128 * KIB


def test_a_skippable_frame_holds_nothing() -> None:
    data = bytes.fromhex("5f2a4d18 03000000") + b"abc"

    frame = walk_zstd_frame(memoryview(data + b"behind"))

    assert frame == ZstdFrame(end=len(data), content_size_max=0, is_skippable=True)


@pytest.mark.parametrize("checksum", [False, True])
def test_a_frame_cut_anywhere_is_refused(checksum: bool) -> None:
    data = framed(content_size=True, checksum=checksum)

    for size in range(len(data)):
        with pytest.raises(FormatError):
            walk_zstd_frame(memoryview(data[:size]))


def test_a_skippable_frame_cut_short_is_truncated() -> None:
    data = bytes.fromhex("502a4d18 ffffffff") + b"abc"

    with pytest.raises(TruncatedInputError, match="needs 4294967303 bytes, got 11"):
        walk_zstd_frame(memoryview(data))


@pytest.mark.parametrize(
    ("block_header", "reason"),
    [
        ("070000", "reserved type"),
        ("090010", "zstd block of 131073 bytes"),
    ],
)
def test_a_block_that_cannot_be_is_refused(block_header: str, reason: str) -> None:
    data = bytes.fromhex("28b52ffd 0058" + block_header) + bytes(200_000)

    with pytest.raises(FormatError, match=f"at byte 6: .*{reason}"):
        walk_zstd_frame(memoryview(data))


def test_a_content_size_that_the_blocks_cannot_hold_is_refused() -> None:
    data = bytes.fromhex("28b52ffd e0 ffffffffffffff0f 010000")

    with pytest.raises(FormatError, match="its blocks hold at most 0"):
        walk_zstd_frame(memoryview(data))


def test_what_starts_with_another_magic_is_no_frame() -> None:
    with pytest.raises(FormatError, match="bad zstd frame header"):
        walk_zstd_frame(memoryview(b"not a zstd frame"))
