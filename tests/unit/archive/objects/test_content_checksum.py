"""The checksum is that of S3, whatever the pieces are."""

import hashlib

import pytest

from cordwood.archive.objects.content_checksum import ContentChecksum, content_checksum


def test_a_small_object_has_its_md5() -> None:
    assert content_checksum(b"some bytes", 100) == hashlib.md5(b"some bytes").hexdigest()
    assert content_checksum(b"", 100) == hashlib.md5(b"").hexdigest()


@pytest.mark.parametrize(
    ("size", "parts"), [(99, None), (100, [100]), (101, [100, 1]), (250, [100, 100, 50])]
)
def test_a_large_object_has_the_md5_of_its_parts_md5s(size: int, parts: list[int] | None) -> None:
    content = bytes(range(256))[:size]
    wanted = hashlib.md5(content).hexdigest()
    if parts is not None:
        cut, digests = 0, b""
        for part in parts:
            digests += hashlib.md5(content[cut : cut + part]).digest()
            cut += part
        wanted = f"{hashlib.md5(digests).hexdigest()}-{len(parts)}"

    checksum = ContentChecksum(100)
    for at in range(0, size, 33):
        checksum.update(content[at : at + 33])

    assert checksum.value() == wanted == content_checksum(content, 100)
