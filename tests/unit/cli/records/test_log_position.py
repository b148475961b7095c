"""Places in a log as people write them."""

from datetime import datetime

import pytest

from cordwood.cli.records.log_position import (
    AtOffset,
    AtTime,
    BeforeEnd,
    Edge,
    LogPosition,
    parse_position,
    parse_time_ms,
)
from cordwood.errors import ConfigError

NOW_MS = 1_800_000_000_000


def local_ms(*parts: int) -> int:
    return int(datetime(*parts).timestamp() * 1000)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("beginning", Edge.BEGINNING),
        ("earliest", Edge.BEGINNING),
        ("END", Edge.END),
        ("latest", Edge.END),
        ("0", AtOffset(offset=0)),
        ("42", AtOffset(offset=42)),
        ("999999999999", AtOffset(offset=999_999_999_999)),
        ("1000000000000", AtTime(timestamp_ms=10**12)),
        ("-10", BeforeEnd(count=10)),
        ("-10m", AtTime(timestamp_ms=NOW_MS - 600_000)),
        ("-1h", AtTime(timestamp_ms=NOW_MS - 3_600_000)),
        ("-7d", AtTime(timestamp_ms=NOW_MS - 7 * 86_400_000)),
        ("-250ms", AtTime(timestamp_ms=NOW_MS - 250)),
        ("-99999d", AtTime(timestamp_ms=0)),
        ("now", AtTime(timestamp_ms=NOW_MS)),
        ("@0", AtTime(timestamp_ms=0)),
        ("@1700000000123", AtTime(timestamp_ms=1_700_000_000_123)),
        ("2026-11-16T09:30:00Z", AtTime(timestamp_ms=1_794_821_400_000)),
        ("2026-11-16T09:30:00.250+01:00", AtTime(timestamp_ms=1_794_817_800_250)),
        ("2026-11-16 09:30", AtTime(timestamp_ms=local_ms(2026, 11, 16, 9, 30))),
        ("2026-11-16", AtTime(timestamp_ms=local_ms(2026, 11, 16))),
    ],
)
def test_a_place_is_an_edge_an_offset_or_a_time(text: str, expected: LogPosition) -> None:
    assert parse_position(text, "--from", now_ms=NOW_MS) == expected


def test_a_time_alone_is_one_of_today() -> None:
    today = datetime.now().date()

    found = parse_position("09:30", "--from", now_ms=NOW_MS)

    assert found == AtTime(timestamp_ms=local_ms(today.year, today.month, today.day, 9, 30))


@pytest.mark.parametrize(
    "text", ["", "soon", "10m", "-10y", "--5", "@", "@x", "@-1", "2026-13-01", "1.5", "9" * 19]
)
def test_what_is_no_place_names_the_option(text: str) -> None:
    with pytest.raises(ConfigError) as refused:
        parse_position(text, "--from", now_ms=NOW_MS)

    assert refused.value.key == "--from"


def test_where_only_a_time_can_be_any_number_is_one() -> None:
    assert parse_time_ms("5", "--timestamp", now_ms=NOW_MS) == 5
    assert parse_time_ms("-10m", "--timestamp", now_ms=NOW_MS) == NOW_MS - 600_000
    assert parse_time_ms("1970-01-01T00:00:05Z", "--timestamp", now_ms=NOW_MS) == 5000
    with pytest.raises(ConfigError, match="--timestamp = -5"):
        parse_time_ms("-5", "--timestamp", now_ms=NOW_MS)
