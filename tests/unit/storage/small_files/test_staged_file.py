"""Staged files come back as they were written, or are refused."""

from __future__ import annotations

import pytest

from cordwood.errors import FormatError, RecordTooLargeError
from cordwood.storage.small_files.staged_file import StagedFile, StagedFileWriter
from fakes.client_batches import client_batch
from fakes.simulated_fs import SimulatedFileSystem

PATH = "/staged"


@pytest.fixture
def fs() -> SimulatedFileSystem:
    return SimulatedFileSystem()


def write(fs: SimulatedFileSystem, *batches: tuple[str, int, bytes]) -> int:
    writer = StagedFileWriter(fs, PATH)
    for topic, partition, value in batches:
        writer.add((topic, partition), client_batch(value))
    return writer.finish()


def test_batches_are_read_by_place_in_the_order_they_were_written(
    fs: SimulatedFileSystem,
) -> None:
    size = write(fs, ("a", 0, b"1"), ("b", 0, b"2"), ("a", 0, b"3"))

    with StagedFile(fs, PATH, size=size) as staged:
        found = [bytes(batch) for batch in staged.batches(("a", 0), size_max=1000)]

    assert found == [bytes(client_batch(b"1")), bytes(client_batch(b"3"))]


def test_batches_can_be_written_to(fs: SimulatedFileSystem) -> None:
    size = write(fs, ("a", 0, b"1"))

    with StagedFile(fs, PATH, size=size) as staged:
        [batch] = staged.batches(("a", 0), size_max=1000)
        batch[0:8] = bytes(8)


def test_a_file_of_another_size_is_refused(fs: SimulatedFileSystem) -> None:
    size = write(fs, ("a", 0, b"1"))

    with pytest.raises(FormatError, match=f"{size} bytes, not {size + 1}"):
        StagedFile(fs, PATH, size=size + 1)


def test_a_file_that_was_not_finished_is_refused(fs: SimulatedFileSystem) -> None:
    writer = StagedFileWriter(fs, PATH)
    writer.add(("a", 0), client_batch(b"1"))
    writer.close()

    with pytest.raises(FormatError):
        StagedFile(fs, PATH, size=writer.size)


def test_no_memory_is_taken_for_a_batch_that_is_too_large(fs: SimulatedFileSystem) -> None:
    size = write(fs, ("a", 0, b"x" * 500))

    with StagedFile(fs, PATH, size=size) as staged, pytest.raises(RecordTooLargeError):
        next(staged.batches(("a", 0), size_max=100))
