import pytest

from cordwood.console.views.words import (
    duration_in_words,
    moment_as_iso,
    moment_from_now,
    moment_in_words,
    rate_in_words,
    size_in_words,
)

NOW_MS = 1_793_523_600_000


def test_sizes_have_units_of_1024() -> None:
    assert [size_in_words(n) for n in (0, 1023, 1024, 1536, 5 << 30, None)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
        "–",
    ]


def test_a_moment_is_absolute_and_has_its_zone() -> None:
    assert moment_in_words(NOW_MS) == "2026-11-01 09:00:00 UTC"
    assert moment_as_iso(NOW_MS) == "2026-11-01T09:00:00.000Z"


@pytest.mark.parametrize("time_ms", [-1, 10**17, -(10**17)])
def test_a_moment_outside_of_the_calendar_is_a_number(time_ms: int) -> None:
    assert moment_in_words(time_ms) == f"{time_ms} ms"
    assert moment_as_iso(time_ms) == ""


@pytest.mark.parametrize(
    ("apart_ms", "words"),
    [
        (0, "now"),
        (-5_000, "5 seconds ago"),
        (60_000, "in 1 minute"),
        (-86_400_000 * 3, "3 days ago"),
    ],
)
def test_a_moment_from_now(apart_ms: int, words: str) -> None:
    assert moment_from_now(NOW_MS + apart_ms, NOW_MS) == words


def test_a_duration_has_two_units_at_most() -> None:
    assert [duration_in_words(n) for n in (5, 61_000, 3_600_000, 90_061_000)] == [
        "5 ms",
        "1 min 1 s",
        "1 h",
        "1 d 1 h",
    ]


def test_small_rates_have_a_digit_behind_the_point() -> None:
    assert [rate_in_words(n) for n in (0.0, 0.25, 12.34, 1234.5)] == ["0", "0.2", "12.3", "1,234"]
