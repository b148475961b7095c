from uuid import UUID

import pytest

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.small_files.partition_metadata import (
    METADATA_TOPIC_ID,
    ZERO_TOPIC_ID,
    decode_topic_id,
    encode_topic_id,
    new_topic_id,
    parse_partition_metadata,
    render_partition_metadata,
)


@pytest.mark.parametrize(
    ("topic_id", "text"),
    [
        (ZERO_TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAA"),
        (METADATA_TOPIC_ID, "AAAAAAAAAAAAAAAAAAAAAQ"),
        (UUID(int=2**128 - 1), "_____________________w"),
        (UUID("fbefbefb-efbe-fbef-befb-efbefbefbefb"), "--------------------" + "-w"),
        (UUID("00112233-4455-6677-8899-aabbccddeeff"), "ABEiM0RVZneImaq7zN3u_w"),
    ],
)
def test_a_topic_id_is_22_characters(topic_id: UUID, text: str) -> None:
    assert encode_topic_id(topic_id) == text
    assert decode_topic_id(text) == topic_id


@pytest.mark.parametrize(
    "text",
    [
        "",
        "AAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAAA",
        "AAAAAAAAAAAAAAAAAAAAAA==",
        "AAAAAAAAAAAAAAAAAAAAAB",
        "AAAAAAAAAAAAAAAAAAAA+A",
        "AAAAAAAAAAAAAAAAAAAA/A",
        "AAAAAAAAAAAAAAAAAAAA A",
        "AAAAAAAAAAAAAAAAAAAAA\n",
        "AAAAAAAAAAAAAAAAAAAAAÄ",
        "A" * 1_000_000,
    ],
)
def test_any_other_text_is_no_topic_id(text: str) -> None:
    with pytest.raises(FormatError):
        decode_topic_id(text)


def test_new_ids_are_neither_reserved_nor_look_like_an_option() -> None:
    option_like = UUID("f8000000-0000-4000-8000-000000000000")
    good = UUID("00112233-4455-4677-8899-aabbccddeeff")
    drawn = iter([ZERO_TOPIC_ID, METADATA_TOPIC_ID, UUID(int=99), option_like, good])

    topic_id = new_topic_id(lambda: next(drawn))

    assert encode_topic_id(option_like).startswith("-")
    assert topic_id == good


def test_new_ids_differ() -> None:
    assert new_topic_id() != new_topic_id()


def test_the_file_is_two_lines_without_a_last_newline() -> None:
    topic_id = UUID("00112233-4455-6677-8899-aabbccddeeff")

    text = render_partition_metadata(topic_id)

    assert text == "version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w"
    assert parse_partition_metadata(text) == topic_id


@pytest.mark.parametrize(
    "text",
    [
        "version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\n",
        "version: 0\r\ntopic_id: ABEiM0RVZneImaq7zN3u_w\r\n",
        "version:  0\ntopic_id:\tABEiM0RVZneImaq7zN3u_w",
    ],
)
def test_other_line_ends_and_blanks_are_read(text: str) -> None:
    assert parse_partition_metadata(text) == UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "at byte 0: line 1"),
        ("version: 0", "at byte 0: line 1"),
        ("version: x\ntopic_id: ABEiM0RVZneImaq7zN3u_w", "at byte 0: line 1"),
        ("topic_id: ABEiM0RVZneImaq7zN3u_w\nversion: 0", "at byte 0: line 1"),
        ("version: 0\n", "at byte 11: line 2"),
        ("version: 0\ntopic_id:", "at byte 11: line 2"),
        ("version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_", "at byte 11: line 2"),
        ("version: 0\ntopic_id: ABEiM0RVZneImaq7zN3u_w\nmore", "at byte 11: line 2"),
        ("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "at byte 11: line 2: the topic id is all"),
    ],
)
def test_a_malformed_file_names_the_line(text: str, reason: str) -> None:
    with pytest.raises(FormatError) as raised:
        parse_partition_metadata(text)

    assert str(raised.value).startswith(reason)


def test_another_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedFormatError, match=r"partition\.metadata version: 1"):
        parse_partition_metadata("version: 1\ntopic_id: ABEiM0RVZneImaq7zN3u_w")
