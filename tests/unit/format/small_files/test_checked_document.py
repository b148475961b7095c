"""A numbered body under a checksum: whole and unchanged, or refused."""

from random import Random

import pytest

from cordwood.errors import FormatError
from cordwood.format.small_files.checked_document import (
    CheckedDocument,
    decode_document,
    document_head_size,
    encode_document,
)

NAME = "cordwood-sample"
DOCUMENT = CheckedDocument(41, b'{"a": 1}\nsecond line')


@pytest.mark.parametrize("document", [DOCUMENT, CheckedDocument(0, b"")])
def test_what_is_encoded_is_decoded_as_it_was(document: CheckedDocument) -> None:
    assert decode_document(NAME, encode_document(NAME, document)) == document


def test_the_size_of_the_head_is_known_before_the_body() -> None:
    content = encode_document(NAME, DOCUMENT)

    assert content[document_head_size(NAME, 41) :] == DOCUMENT.body


def test_any_flipped_bit_is_found() -> None:
    content = encode_document(NAME, DOCUMENT)
    rng = Random(1)
    for _ in range(300):
        damaged = bytearray(content)
        damaged[rng.randrange(len(damaged))] ^= 1 << rng.randrange(8)

        with pytest.raises(FormatError):
            decode_document(NAME, bytes(damaged))


@pytest.mark.parametrize("content", [b"", b"cordwood-other 1 1 00000000\n", b"cordwood-sample"])
def test_other_content_is_refused(content: bytes) -> None:
    with pytest.raises(FormatError, match="not a cordwood-sample file"):
        decode_document(NAME, content)


def test_an_unknown_version_is_refused() -> None:
    content = encode_document(NAME, DOCUMENT).replace(b"sample 1 ", b"sample 2 ", 1)

    with pytest.raises(FormatError, match="version"):
        decode_document(NAME, content)
