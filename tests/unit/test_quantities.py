"""Sizes and durations as people write them."""

import pytest

from cordwood.quantities import GIB, KIB, MIB, parse_duration_ms, parse_size


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1048576", MIB),
        ("64MiB", 64 * MIB),
        ("64m", 64 * MIB),
        ("64 mib", 64 * MIB),
        (" 4KiB ", 4 * KIB),
        ("4k", 4 * KIB),
        ("4KB", 4000),
        ("1GB", 1_000_000_000),
        ("1GiB", GIB),
        ("2TiB", 2048 * GIB),
        ("12b", 12),
        ("-1", -1),
    ],
)
def test_a_size_is_a_number_of_bytes_with_or_without_a_unit(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("0", 0),
        ("604800000", 604_800_000),
        ("250ms", 250),
        ("90s", 90_000),
        ("5m", 300_000),
        ("5min", 300_000),
        ("2h", 7_200_000),
        ("7d", 604_800_000),
        ("1w", 604_800_000),
        (" 7 D ", 604_800_000),
        ("-1", -1),
    ],
)
def test_a_duration_is_a_number_of_milliseconds_with_or_without_a_unit(
    text: str, duration_ms: int
) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "MiB", "1.5GiB", "64MiB/s", "1 2", "7d", "1e3", "0x10"])
def test_text_that_is_no_size_is_refused_with_the_units_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="KiB, MiB, GiB"):
        parse_size(text)


@pytest.mark.parametrize("text", ["", "d", "1.5h", "1h30m", "64MiB", "soon"])
def test_text_that_is_no_duration_is_refused_with_the_units_there_are(text: str) -> None:
    with pytest.raises(ValueError, match="ms, s, m, h, d, w"):
        parse_duration_ms(text)
