"""Numbers, times and bytes for people."""

import pytest

from cordwood.cli.readable_values import (
    iso_time,
    printable,
    shown,
    shown_bytes,
    shown_count,
    shown_duration,
    shown_time,
)


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (None, "-"),
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_572_864, "1.5 MiB"),
        (5 * 1024**3, "5.0 GiB"),
        (3 * 1024**4, "3.0 TiB"),
    ],
)
def test_sizes_have_units(size: int | None, expected: str) -> None:
    assert shown_bytes(size) == expected


def test_counts_and_durations_are_short() -> None:
    assert (shown_count(1_234_567), shown_count(None)) == ("1,234,567", "-")
    durations = [shown_duration(ms) for ms in (None, 250, 1500, 90_000, 5_400_000, 172_800_000)]
    assert durations == ["-", "250 ms", "1.5 s", "1.5 min", "1.5 h", "2.0 d"]


def test_times_are_local_and_name_their_zone() -> None:
    assert shown_time(None) == shown_time(-1) == "-"
    assert shown_time(1_700_000_000_250)[10:11] == " "
    assert iso_time(1_700_000_000_250).split(".")[1].startswith("250")


def test_a_time_that_no_calendar_has_stays_a_number() -> None:
    assert iso_time(2**62) == f"@{2**62}"


def test_cells_say_what_is_not_there() -> None:
    assert [shown(v) for v in (None, True, False, [], ["a", "b"], 5, "x")] == [
        "-",
        "yes",
        "no",
        "-",
        "a, b",
        "5",
        "x",
    ]


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (None, ""),
        (b"plain text", "plain text"),
        ("schön €".encode(), "schön €"),
        (b"a\nb\tc\r", "a\\nb\\tc\\r"),
        (b"\x1b[31m\x00\x7f", "\\x1b[31m\\x00\\x7f"),
        ("\x9b31m\u00a0".encode(), "\\x9b31m\\xa0"),
        ("\u202e\u07b6\U000e0001".encode(), "\\u202e\\u07b6\\U000e0001"),
        (b"\xff\\a", "\\xff\\x5ca"),
    ],
)
def test_bytes_cannot_steer_a_terminal(data: bytes | None, expected: str) -> None:
    assert printable(data) == expected
