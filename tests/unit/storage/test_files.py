"""What the functions over the port and the real file system add to the shared contract."""

import errno
import gc
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cordwood.storage.files import RealFileSystem, read_whole, replace_file, write_all
from fakes.simulated_fs import ShortWrite, SimulatedFileSystem


def test_write_all_goes_on_after_short_writes() -> None:
    fs = SimulatedFileSystem()
    file = fs.create("/file")
    fs.fail_at(1, ShortWrite(2))
    fs.fail_at(2, ShortWrite(1))

    write_all(file, 3, memoryview(b"abcdef"))

    assert file.read_at(0, 20) == b"\0\0\0abcdef"
    assert [operation for operation, _ in fs.call_log].count("write_at") == 3


def test_write_all_gives_up_on_a_disk_that_takes_nothing() -> None:
    fs = SimulatedFileSystem()
    file = fs.create("/file")
    fs.fail_at(1, ShortWrite(0))

    with pytest.raises(OSError, match="accepted no bytes"):
        write_all(file, 0, b"abc")


def test_writing_nothing_is_fine() -> None:
    fs = SimulatedFileSystem()
    file = fs.create("/file")

    write_all(file, 0, b"")

    assert file.size() == 0


@pytest.mark.parametrize("failing", ["create", "write_at", "sync", "rename"])
def test_a_replacement_that_fails_leaves_the_old_file_and_no_temporary_one(failing: str) -> None:
    fs = SimulatedFileSystem()
    replace_file(fs, "/file", b"old")
    fs.fail_next(failing, OSError(errno.ENOSPC, "injected"))

    with pytest.raises(OSError, match="injected"):
        replace_file(fs, "/file", b"new")

    assert [entry.name for entry in fs.list("/")] == ["file"]
    assert read_whole(fs, "/file", limit=10) == b"old"


def test_a_replacement_syncs_the_file_before_the_name_and_the_name_last() -> None:
    fs = SimulatedFileSystem()

    replace_file(fs, "/file", b"new")

    assert [operation for operation, _ in fs.call_log] == [
        "create",
        "write_at",
        "sync",
        "rename",
        "sync_directory",
    ]


def test_a_file_without_references_gives_its_descriptor_back(tmp_path: Path) -> None:
    file = RealFileSystem().create(str(tmp_path / "file"))
    fd, at = file.fileno(), os.stat(tmp_path / "file")

    del file
    gc.collect()

    with suppress(OSError):  # another thread may have the number now
        assert (os.fstat(fd).st_dev, os.fstat(fd).st_ino) != (at.st_dev, at.st_ino)


def test_an_error_names_the_file_and_what_was_being_done(tmp_path: Path) -> None:
    file = RealFileSystem().create(str(tmp_path / "file"))
    file.close()

    with pytest.raises(OSError, match="descriptor") as raised:
        file.write_at(0, b"x")

    assert raised.value.__notes__ == [f"while writing {tmp_path / 'file'}"]


def test_descriptors_are_not_inherited_by_programs_started_here(tmp_path: Path) -> None:
    file = RealFileSystem().create(str(tmp_path / "file"))

    assert not os.get_inheritable(file.fileno())


def test_words_are_real_blocks_on_the_disk_and_not_a_hole(tmp_path: Path) -> None:
    RealFileSystem().map_words(str(tmp_path / "words"), 512, writable=True)

    assert os.stat(tmp_path / "words").st_blocks > 0


def test_a_directory_that_cannot_be_looked_into_is_not_called_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted, look = str(tmp_path / "file"), os.stat

    def refuse(path: str, **options: Any) -> os.stat_result:
        if path != wanted:
            return look(path, **options)  # for another thread
        raise PermissionError(errno.EACCES, "refused", path)

    monkeypatch.setattr(os, "stat", refuse)

    with pytest.raises(PermissionError):
        RealFileSystem().exists(wanted)
