"""The saved time: read back, newest copy first, ignored if it is damaged."""

from __future__ import annotations

import pytest

from cordwood.errors import FormatError
from cordwood.log.rules.steady_clock import SteadyTime
from cordwood.log.topics.time_file import (
    TIME_FILE,
    TimeFile,
    decode_time,
    encode_time,
    open_steady_clock,
)
from cordwood.quantities import KIB, TimestampMs
from cordwood.storage.files import read_whole, replace_file
from fakes.manual_clock import START_MS, ManualClock
from fakes.simulated_fs import SimulatedFileSystem

WEEK_MS = 7 * 24 * 3_600_000


def reading(now_ms: int, *, jump_ms: int = 0, doubted_ms: int = 0) -> SteadyTime:
    return SteadyTime(
        now_ms=TimestampMs(now_ms), wall_ms=TimestampMs(now_ms + jump_ms), doubted_ms=doubted_ms
    )


def test_a_saved_time_is_read_back() -> None:
    time = reading(START_MS, jump_ms=WEEK_MS, doubted_ms=1234)

    assert decode_time(encode_time(time)) == time


@pytest.mark.parametrize("cut", [0, 10, -1])
def test_a_damaged_file_is_refused(cut: int) -> None:
    with pytest.raises(FormatError):
        decode_time(encode_time(reading(START_MS))[:cut])


def test_the_newest_sound_copy_counts(caplog: pytest.LogCaptureFixture) -> None:
    fs = SimulatedFileSystem()
    for path in ("/a", "/b", "/c", "/d"):
        fs.make_directory(path)
    TimeFile(fs, "/a").save(reading(START_MS - WEEK_MS))
    TimeFile(fs, "/b").save(reading(START_MS))
    replace_file(fs, f"/c/{TIME_FILE}", b"rot")

    steady = open_steady_clock(fs, ["/a", "/b", "/c", "/d"], ManualClock(START_MS + WEEK_MS))

    assert steady.now_ms() == START_MS
    assert f"ignoring /c/{TIME_FILE}" in caplog.text
    assert "Correct the clock if it is wrong" in caplog.text


def test_a_store_without_the_file_believes_the_clock() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory("/a")

    assert open_steady_clock(fs, ["/a"], ManualClock()).now_ms() == START_MS


def test_checkpoints_write_the_file_once_an_hour_or_while_the_clock_is_doubted() -> None:
    fs = SimulatedFileSystem()
    fs.make_directory("/a")
    file = TimeFile(fs, "/a")
    saved = []
    for time in (
        reading(START_MS),
        reading(START_MS + 60_000),
        reading(START_MS + 120_000, jump_ms=WEEK_MS),
        reading(START_MS + 180_000),
        reading(START_MS + 120_000 + 3_600_000),
    ):
        file.save_if_outdated(time)
        saved.append(read_whole(fs, f"/a/{TIME_FILE}", limit=KIB) == encode_time(time))

    assert saved == [True, False, True, False, True]
