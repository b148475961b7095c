import pytest

from cordwood.errors import FormatError, UnsupportedFormatError
from cordwood.format.small_files.checkpoint_text import (
    EpochEntry,
    decode_text,
    parse_epoch_checkpoint,
    parse_offset_checkpoint,
    render_epoch_checkpoint,
    render_offset_checkpoint,
)
from cordwood.quantities import INT64_MAX, LeaderEpoch, Offset


def epoch_entry(epoch: int, start_offset: int) -> EpochEntry:
    return EpochEntry(epoch=LeaderEpoch(epoch), start_offset=Offset(start_offset))


def test_an_offset_checkpoint_has_a_line_for_each_partition() -> None:
    offsets = {("orders", 10): Offset(7), ("orders", 2): Offset(INT64_MAX), ("a.b", 0): Offset(0)}

    text = render_offset_checkpoint(offsets)

    assert text == f"0\n3\na.b 0 0\norders 2 {INT64_MAX}\norders 10 7\n"
    assert parse_offset_checkpoint(text) == offsets


def test_an_epoch_checkpoint_has_a_line_for_each_epoch() -> None:
    entries = [epoch_entry(0, 0), epoch_entry(3, 120), epoch_entry(4, 120)]

    text = render_epoch_checkpoint(entries)

    assert text == "0\n3\n0 0\n3 120\n4 120\n"
    assert parse_epoch_checkpoint(text) == entries


def test_no_entries_are_still_two_lines() -> None:
    assert render_offset_checkpoint({}) == "0\n0\n"
    assert render_epoch_checkpoint([]) == "0\n0\n"


@pytest.mark.parametrize("text", ["", "0\n0\n", "0\n0"])
def test_a_checkpoint_may_be_empty(text: str) -> None:
    assert parse_offset_checkpoint(text) == {}
    assert parse_epoch_checkpoint(text) == []


@pytest.mark.parametrize(
    "text", ["0\n1\nt 0 5", "0\n1\nt 0 5\n", "0\r\n1\r\nt 0 5\r\n", "0\n1\nt \t0  5 \n"]
)
def test_blanks_and_line_ends_may_be_others_than_ours(text: str) -> None:
    assert parse_offset_checkpoint(text) == {("t", 0): 5}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("\n", "at byte 0: line 1: version ''"),
        ("x\n0\n", "at byte 0: line 1: version 'x'"),
        ("-1\n0\n", "at byte 0: line 1: version '-1'"),
        ("0", "at byte 1: line 2: the number of entries is missing"),
        ("0\n", "at byte 2: line 2: the number of entries is missing"),
        ("0\n\n", "at byte 2: line 2: number of entries ''"),
        ("0\n-1\n", "at byte 2: line 2: number of entries '-1'"),
        ("0\n1_0\n", "at byte 2: line 2: number of entries '1_0'"),
        ("0\n2147483648\n", "at byte 2: line 2: number of entries"),
        ("0\n" + "9" * 5000 + "\n", "at byte 2: line 2: number of entries"),
        ("0\n2\nt 0 5\n", "at byte 2: line 2: the header says 2 entries, found 1"),
        ("0\n0\nt 0 5\n", "at byte 2: line 2: the header says 0 entries, found 1"),
        ("0\n1\nt 0 5\n\n", "at byte 10: line 4: '' is not"),
        ("0\n1\nt 0\n", "at byte 4: line 3: 't 0' is not"),
        ("0\n1\n t 0 5\n", "at byte 4: line 3: ' t 0 5' is not"),
        ("0\n1\nt 0 5 6\n", "at byte 4: line 3: 't 0 5 6' is not"),
        ("0\n1\nt 0 -5\n", "at byte 4: line 3: 't 0 -5' is not"),
        ("0\n1\nt 0 ٥\n", "at byte 4: line 3:"),
        ("0\n1\nt 2147483648 5\n", "at byte 4: line 3: partition '2147483648'"),
        ("0\n1\nt 0 9223372036854775808\n", "at byte 4: line 3: offset '9223372036854775808'"),
        ("0\n1\nt/u 0 5\n", "at byte 4: line 3: topic name 't/u'"),
        ("0\n2\nt 0 5\nt 0 6\n", "at byte 10: line 4: t-0 appears twice"),
    ],
)
def test_a_malformed_offset_checkpoint_names_the_line(text: str, reason: str) -> None:
    with pytest.raises(FormatError) as raised:
        parse_offset_checkpoint(text)

    assert str(raised.value).startswith(reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("0\n1\n5\n", "line 3: '5' is not"),
        ("0\n1\n-1 5\n", "line 3: '-1 5' is not"),
        ("0\n1\n2147483648 5\n", "line 3: epoch '2147483648'"),
        ("0\n2\n1 5\n1 6\n", "line 4: epoch 1 follows epoch 1"),
        ("0\n2\n2 5\n1 6\n", "line 4: epoch 1 follows epoch 2"),
        ("0\n2\n1 5\n2 4\n", "line 4: epoch 2 starts at offset 4, before epoch 1 at 5"),
    ],
)
def test_a_malformed_epoch_checkpoint_names_the_line(text: str, reason: str) -> None:
    with pytest.raises(FormatError) as raised:
        parse_epoch_checkpoint(text)

    assert raised.value.reason.startswith(reason)


def test_another_version_is_unsupported() -> None:
    with pytest.raises(UnsupportedFormatError, match="checkpoint version: 1"):
        parse_offset_checkpoint("1\n0\n")


def test_a_huge_announced_count_costs_nothing() -> None:
    with pytest.raises(FormatError, match="says 2147483647 entries, found 0"):
        parse_offset_checkpoint("0\n2147483647\n")


def test_bytes_that_are_not_text_are_located() -> None:
    assert decode_text(b"0\n0\n") == "0\n0\n"

    with pytest.raises(FormatError, match="at byte 2: not UTF-8"):
        decode_text(b"0\n\xff")
