"""Two directories change places in one step."""

import errno
import os
from pathlib import Path

import pytest

from cordwood.storage.disk import directory_exchange
from cordwood.storage.disk.directory_exchange import exchange


@pytest.fixture
def pair(tmp_path: Path) -> tuple[str, str]:
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"of {name}").touch()
    return str(tmp_path / "first"), str(tmp_path / "second")


def test_each_name_leads_to_the_other_directory(pair: tuple[str, str]) -> None:
    if not exchange(*pair):
        pytest.skip("this file system cannot exchange directories")

    assert [os.listdir(path) for path in pair] == [["of second"], ["of first"]]


def test_a_name_that_does_not_exist_is_an_error(pair: tuple[str, str]) -> None:
    if not exchange(*pair):
        pytest.skip("this file system cannot exchange directories")

    with pytest.raises(FileNotFoundError):
        exchange(pair[0], pair[1] + " of nobody")


def test_a_system_that_cannot_says_so_and_changes_nothing(
    pair: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_first: bytes, _second: bytes) -> int:
        import ctypes

        ctypes.set_errno(errno.EINVAL)
        return -1

    for call in (lambda: refuse, lambda: None):
        monkeypatch.setattr(directory_exchange, "_system_call", call)

        assert exchange(*pair) is False

    assert [os.listdir(path) for path in pair] == [["of first"], ["of second"]]
