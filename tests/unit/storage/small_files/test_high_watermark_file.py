"""What one process publishes, others read: a sound value or none."""

import random
import subprocess
import sys
from pathlib import Path

import pytest

from cordwood.quantities import Offset
from cordwood.storage.files import FileSystem, RealFileSystem, read_whole, replace_file
from cordwood.storage.small_files.high_watermark_file import WORD_COUNT, HighWatermarkFile, LogMarks
from fakes.simulated_fs import SimulatedFileSystem


@pytest.fixture(params=["real", "simulated"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    if request.param == "real":
        return RealFileSystem(), str(tmp_path)
    return SimulatedFileSystem(), "/"


def test_a_new_file_says_nothing(place: tuple[FileSystem, str]) -> None:
    fs, directory = place

    writer = HighWatermarkFile(fs, directory, writable=True)

    assert writer.read() == LogMarks()
    assert HighWatermarkFile(fs, directory, writable=False).read() == LogMarks()


def test_readers_see_what_is_published_at_once(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    writer = HighWatermarkFile(fs, directory, writable=True)
    reader = HighWatermarkFile(fs, directory, writable=False)

    writer.publish(high_watermark=Offset(5), log_start=Offset(0), durable=Offset(3))
    first = reader.read()
    writer.publish(high_watermark=Offset(7))

    assert first == LogMarks(high_watermark=Offset(5), log_start=Offset(0), durable=Offset(3))
    assert reader.read() == LogMarks(
        high_watermark=Offset(7), log_start=Offset(0), durable=Offset(3)
    )


def test_offset_zero_is_told_from_nothing(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    writer = HighWatermarkFile(fs, directory, writable=True)

    writer.publish(high_watermark=Offset(0))

    assert writer.read() == LogMarks(high_watermark=Offset(0))


def test_the_marks_are_there_when_the_file_is_opened_again(
    place: tuple[FileSystem, str],
) -> None:
    fs, directory = place
    writer = HighWatermarkFile(fs, directory, writable=True)
    writer.publish(durable=Offset(9))
    writer.sync()
    writer.close()
    writer.close()

    assert HighWatermarkFile(fs, directory, writable=True).read() == LogMarks(durable=Offset(9))


def test_a_reader_may_come_before_the_writer(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    reader = HighWatermarkFile(fs, directory, writable=False)
    before = reader.read()

    HighWatermarkFile(fs, directory, writable=True).publish(high_watermark=Offset(1))

    assert before == LogMarks()
    assert reader.read().high_watermark == 1


def test_the_bytes_are_those_of_the_table() -> None:
    fs = SimulatedFileSystem()
    writer = HighWatermarkFile(fs, "/", writable=True)

    writer.publish(high_watermark=Offset(3), log_start=Offset(1), durable=Offset(2))

    words = [3, ~3, 1, ~1, 2, ~2, 2, ~2]
    expected = b"cordwhw\x01" + b"".join(word.to_bytes(8, "little", signed=True) for word in words)
    assert read_whole(fs, writer.path, limit=100) == expected


@pytest.mark.parametrize(
    "content", [b"", b"cordwhw\x01", b"cordwhw\x02" * WORD_COUNT, b"x" * 8 * WORD_COUNT]
)
def test_a_short_or_foreign_file_says_nothing_and_is_taken_over_by_a_writer(
    content: bytes,
) -> None:
    fs = SimulatedFileSystem()
    replace_file(fs, "/high-watermark", content)

    read = HighWatermarkFile(fs, "/", writable=False).read()
    writer = HighWatermarkFile(fs, "/", writable=True)
    taken_over = writer.read()
    writer.publish(high_watermark=Offset(1))

    assert read == taken_over == LogMarks()
    assert writer.read() == LogMarks(high_watermark=Offset(1))


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        (1, LogMarks(log_start=Offset(1), durable=Offset(2))),
        (2, LogMarks(log_start=Offset(1), durable=Offset(2))),
        (3, LogMarks(high_watermark=Offset(3), durable=Offset(2))),
        (4, LogMarks(high_watermark=Offset(3), durable=Offset(2))),
    ],
)
@pytest.mark.parametrize("bit", [0, 31, 62])
def test_a_flipped_bit_costs_that_value_and_no_other(
    word: int, bit: int, expected: LogMarks
) -> None:
    fs = SimulatedFileSystem()
    writer = HighWatermarkFile(fs, "/", writable=True)
    writer.publish(high_watermark=Offset(3), log_start=Offset(1), durable=Offset(2))
    words = fs.map_words(writer.path, WORD_COUNT, writable=True)
    words[word] ^= 1 << bit

    marks = HighWatermarkFile(fs, "/", writable=False).read()

    assert marks == expected


@pytest.mark.parametrize("word", range(5, WORD_COUNT))
@pytest.mark.parametrize("bit", [0, 31, 62])
def test_a_flipped_bit_in_one_slot_of_the_durable_mark_leaves_the_other(
    word: int, bit: int
) -> None:
    fs = SimulatedFileSystem()
    writer = HighWatermarkFile(fs, "/", writable=True)
    writer.publish(durable=Offset(2))
    writer.publish(durable=Offset(4))
    words = fs.map_words(writer.path, WORD_COUNT, writable=True)
    words[word] ^= 1 << bit

    durable = HighWatermarkFile(fs, "/", writable=False).read().durable

    assert durable in (2, 4)


def test_both_slots_of_the_durable_mark_lost_is_no_mark() -> None:
    fs = SimulatedFileSystem()
    writer = HighWatermarkFile(fs, "/", writable=True)
    writer.publish(durable=Offset(2))
    words = fs.map_words(writer.path, WORD_COUNT, writable=True)
    words[6] = words[8] = 0

    assert HighWatermarkFile(fs, "/", writable=False).read().durable is None


@pytest.mark.parametrize("stores", range(1, 12))
def test_the_durable_mark_can_be_read_between_any_two_stores(stores: int) -> None:
    """A writer that is stopped for good in the middle of publishing leaves a sound mark."""
    fs = SimulatedFileSystem()
    writer = HighWatermarkFile(fs, "/", writable=True)
    writer.publish(durable=Offset(1))
    writer.sync()
    fs.sync_directory("/")
    for durable in range(2, stores):
        writer.publish(durable=Offset(durable))

    seen = {
        HighWatermarkFile(fs.crash(random.Random(seed)), "/", writable=False).read().durable
        for seed in range(100)
    }

    assert None not in seen
    assert max(seen, key=lambda mark: mark or 0) == max(stores - 1, 1)


def test_a_durable_mark_that_is_lowered_is_not_outvoted_by_its_other_slot() -> None:
    fs = SimulatedFileSystem()
    writer = HighWatermarkFile(fs, "/", writable=True)
    for durable in (7, 8, 9):
        writer.publish(durable=Offset(durable))

    writer.publish(durable=Offset(5))

    assert writer.read().durable == 5


def test_a_new_writer_may_lower_the_durable_mark_its_predecessor_left() -> None:
    fs = SimulatedFileSystem()
    first = HighWatermarkFile(fs, "/", writable=True)
    for durable in (7, 8, 9):
        first.publish(durable=Offset(durable))
    first.close()

    second = HighWatermarkFile(fs, "/", writable=True)
    second.publish(durable=Offset(5))

    assert second.read().durable == 5


def test_only_readers_beside_the_owner_wait_for_a_value_that_is_not_sound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fs = SimulatedFileSystem()
    fs.make_directory("d")
    HighWatermarkFile(fs, "d", writable=True).publish(high_watermark=Offset(7))
    words = fs.map_words("d/high-watermark", WORD_COUNT, writable=True)
    words[2] ^= 1
    pauses: list[float] = []
    monkeypatch.setattr("time.sleep", pauses.append)

    assert HighWatermarkFile(fs, "d", writable=True).read().high_watermark is None
    assert pauses == []
    assert HighWatermarkFile(fs, "d", writable=False).read().high_watermark is None
    assert pauses


def test_publishing_repairs_a_value_that_is_not_sound() -> None:
    fs = SimulatedFileSystem()
    writer = HighWatermarkFile(fs, "/", writable=True)
    writer.publish(high_watermark=Offset(3))
    fs.map_words(writer.path, WORD_COUNT, writable=True)[2] = 0

    writer.publish(high_watermark=Offset(3))

    assert writer.read().high_watermark == 3


def test_a_power_cut_leaves_a_published_value_or_none_and_never_another() -> None:
    fs = SimulatedFileSystem()
    writer = HighWatermarkFile(fs, "/", writable=True)
    writer.publish(high_watermark=Offset(10), log_start=Offset(0), durable=Offset(10))
    writer.sync()
    fs.sync_directory("/")
    writer.publish(high_watermark=Offset(11), durable=Offset(11))
    writer.publish(high_watermark=Offset(12))

    seen = {
        HighWatermarkFile(fs.crash(random.Random(seed)), "/", writable=False).read()
        for seed in range(300)
    }

    assert {marks.high_watermark for marks in seen} == {None, 10, 11, 12}
    assert {marks.durable for marks in seen} == {10, 11}
    assert {marks.log_start for marks in seen} == {0}


PUBLISH_FOR_A_WHILE = """
import sys
from cordwood.storage.files import RealFileSystem
from cordwood.storage.small_files.high_watermark_file import HighWatermarkFile
writer = HighWatermarkFile(RealFileSystem(), sys.argv[1], writable=True)
for value in range(100_000):
    writer.publish(high_watermark=value)
"""


def test_a_reader_in_another_process_sees_the_value_only_grow(tmp_path: Path) -> None:
    reader = HighWatermarkFile(RealFileSystem(), str(tmp_path), writable=False)
    writing = subprocess.Popen(
        [sys.executable, "-c", PUBLISH_FOR_A_WHILE, str(tmp_path)],
        env={"PYTHONPATH": ":".join(sys.path)},
    )

    seen = [Offset(0)]
    while writing.poll() is None:
        mark = reader.read().high_watermark
        if mark is not None:
            seen.append(mark)

    assert writing.returncode == 0
    assert seen == sorted(seen)
    assert reader.read().high_watermark == 99_999
