import contextlib
import json
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cordwood.console.decoding.avro_values import MAGIC, decode_avro_file
from cordwood.console.decoding.decoded import ITEMS_MAX, PREVIEW_CHARS_MAX, UndecodableError
from cordwood.console.decoding.msgpack_values import decode_msgpack
from cordwood.console.decoding.value_decoders import CHOICES, decode, parse_json, preview, visible
from fakes.hostile_texts import HOSTILE


def long(number: int) -> bytes:
    zigzag = (number << 1) ^ (number >> 63)
    found = bytearray()
    while zigzag > 0x7F:
        found.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    return bytes([*found, zigzag])


def text(content: str) -> bytes:
    return long(len(content.encode())) + content.encode()


def avro_file(schema: object, block: bytes, count: int, codec: str = "null") -> bytes:
    entries = {"avro.schema": json.dumps(schema), "avro.codec": codec}
    header = b"".join(text(key) + text(value) for key, value in entries.items())
    sync = bytes(16)
    start = MAGIC + long(len(entries)) + header + long(0) + sync
    return start + long(count) + long(len(block)) + block + sync


@pytest.mark.parametrize(
    ("data", "kind", "shown"),
    [
        (None, "none", "null"),
        (b'{"a": 1}', "json", '{\n  "a": 1\n}'),
        (b"42", "json", "42"),
        ("grüße".encode(), "text", "grüße"),
        (b"", "text", ""),
        (b"\x81\xa1a\x01", "msgpack", '{\n  "a": 1\n}'),
        (b"\xff\xfe\x00", "hex", "00000000  ff fe 00"),
    ],
)
def test_the_first_decoder_that_understands_the_bytes_shows_them(
    data: bytes | None, kind: str, shown: str
) -> None:
    decoded = decode(data)

    assert decoded.kind == kind
    assert decoded.text.startswith(shown)


def test_a_decoder_that_does_not_fit_says_why_and_shows_hex() -> None:
    decoded = decode(b"abc", "number")

    assert decoded.kind == "hex"
    assert decoded.note == "not number: a number has 4 or 8 bytes, not 3"


def test_a_number_is_shown_as_whole_and_broken() -> None:
    decoded = decode(struct.pack(">q", -5), "number")

    assert decoded.text == "-5"
    assert decoded.note is not None


def test_a_value_of_a_registry_names_its_schema() -> None:
    assert "schema 7" in str(decode(b"\x00\x00\x00\x00\x07\x02\xff").note)


def test_an_avro_file_is_read_with_the_schema_in_it() -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "tags", "type": {"type": "array", "items": "string"}},
        ],
    }
    block = long(42) + long(1) + text("paid") + long(1) + text("x") + long(0)

    decoded = decode(avro_file(schema, block, 1))

    assert decoded.kind == "avro"
    assert decoded.content == {"id": 42, "note": "paid", "tags": ["x"]}


def test_avro_items_without_bytes_are_counted() -> None:
    bomb = avro_file({"type": "array", "items": "null"}, long(1 << 40), 1)

    with pytest.raises(UndecodableError, match="claims"):
        decode_avro_file(bomb)


def test_avro_that_refers_to_itself_ends() -> None:
    schema = {"type": "record", "name": "R", "fields": [{"name": "r", "type": "R"}]}

    with pytest.raises(UndecodableError, match="too deep"):
        decode_avro_file(avro_file(schema, b"", 1))


def test_compressed_avro_is_not_inflated() -> None:
    with pytest.raises(UndecodableError, match="compressed"):
        decode_avro_file(avro_file("long", long(1), 1, codec="deflate"))


@pytest.mark.parametrize("bomb", [b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\x91" * 5000])
def test_msgpack_that_claims_too_much_is_refused(bomb: bytes) -> None:
    with pytest.raises(UndecodableError):
        decode_msgpack(bomb)


@pytest.mark.parametrize("bomb", [b"[" * 100_000, b'{"a":' * 50_000, b"9" * 900_000])
def test_json_that_is_too_deep_or_too_long_takes_little(bomb: bytes) -> None:
    with contextlib.suppress(UndecodableError):
        parse_json(bomb)

    assert decode(bomb).kind in {"json", "text"}


@given(st.binary(max_size=400), st.sampled_from(CHOICES))
def test_any_bytes_have_a_text(data: bytes, choice: str) -> None:
    decoded = decode(data, choice)

    assert isinstance(decoded.text, str)
    assert len(preview(decoded)) <= PREVIEW_CHARS_MAX + 1


@given(st.binary(max_size=200))
def test_msgpack_and_avro_refuse_or_answer(data: bytes) -> None:
    for attempt in (decode_msgpack, lambda d: decode_avro_file(MAGIC + d)):
        try:
            attempt(data)
        except UndecodableError:
            continue


@pytest.mark.parametrize("hostile", HOSTILE)
def test_invisible_characters_are_escaped(hostile: str) -> None:
    shown = visible(hostile)

    assert all(c.isprintable() for c in shown)


def test_items_are_limited() -> None:
    many = b"\xdd" + (ITEMS_MAX + 1).to_bytes(4, "big") + b"\x01" * (ITEMS_MAX + 1)

    with pytest.raises(UndecodableError, match="too many"):
        decode_msgpack(many)
