"""Formats and JSON of records."""

import pytest

from cordwood.cli.records.input_lines import LineBlock
from cordwood.cli.records.line_records import JsonLines
from cordwood.cli.records.record_format import json_formatter, record_formatter
from cordwood.errors import ConfigError
from cordwood.format.record import Record

RECORD = Record(b"value", b"key", (("a", b"1"), ("b", None)), 1_700_000_000_000, 42)
EMPTY = Record(None, None, (), 0, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", b""),
        ("plain", b"plain"),
        ("%k:%v", b"key:value"),
        ("%s", b"value"),
        ("%t-%p@%o", b"orders-3@42"),
        ("%T", b"1700000000000"),
        ("%K,%S", b"3,5"),
        ("%h", b"a=1,b=-"),
        ("%%k", b"%k"),
        (r"\n\t\r\0\\\x41", b"\n\t\r\0\\A"),
        (r"\q", b"\\q"),
        ("100%", b"100%"),
        ("end\\", b"end\\"),
        ("é%v", "évalue".encode()),
    ],
)
def test_tokens_and_escapes_are_replaced(text: str, expected: bytes) -> None:
    assert record_formatter(text, "orders", null_text="-")(3, RECORD) == expected


def test_what_is_not_there_has_a_text_and_no_size() -> None:
    assert (
        record_formatter("%k|%v|%K|%S|%h", "t", null_text="NULL")(0, EMPTY) == b"NULL|NULL|-1|-1|"
    )


def test_an_unknown_token_is_told_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="unknown token %q; known are %k, %v"):
        record_formatter("%q", "t")


def test_only_a_terminal_gets_bytes_escaped() -> None:
    record = Record(b"\x1b\xff")

    assert record_formatter("%v", "t")(0, record) == b"\x1b\xff"
    assert record_formatter("%v", "t", for_terminal=True)(0, record) == b"\\x1b\\xff"


@pytest.mark.parametrize(
    "record",
    [
        RECORD,
        EMPTY,
        Record(b"\xff", b"\xfe\x00", (("h", b"\x80"), ("h", b"")), 5, 9),
        Record("日本".encode(), b"", (("ü", "ö".encode()),), 5, 9),
    ],
)
def test_json_is_read_back_as_the_same_record(record: Record) -> None:
    line = json_formatter("orders")(2, record)

    found = JsonLines().parse(LineBlock(1, [line.rstrip(b"\n")]))

    assert found == {2: [record._replace(offset=-1)]}
    assert line.count(b"\n") == 1
