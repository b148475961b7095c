"""Who may use the files of a store."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ConfigError
from cordwood.log.inbox.topic_change import CreateTopic
from cordwood.storage.disk.file_access import FileAccess


@pytest.fixture(autouse=True)
def _open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(directory: Path) -> dict[bool, set[int]]:
    """The modes of all files (False) and directories (True), the top included."""
    found: dict[bool, set[int]] = {False: set(), True: set()}
    for path in (directory, *directory.rglob("*")):
        status = path.lstat()
        found[stat.S_ISDIR(status.st_mode)].add(stat.S_IMODE(status.st_mode))
    return found


def use(store: cordwood.Store, directory: Path) -> None:
    """Make every kind of file."""
    topic = store.create_topic("t", config={"segment.records": 1, "key.index": "true"})
    for value in (b"one", b"two", b"three"):
        topic.append(value, key=b"k")
    store.group("g").commit({("t", 0): 1})
    store.maintain()
    store.snapshot(directory / "copy")


@pytest.mark.parametrize(
    ("access", "file_mode", "directory_mode"),
    [("owner", 0o600, 0o700), ("group", 0o660, 0o770), ("all", 0o666, 0o777)],
)
def test_every_file_has_the_mode_of_the_setting(
    tmp_path: Path, access: str, file_mode: int, directory_mode: int
) -> None:
    with cordwood.open(tmp_path / "data", access=access) as store:
        use(store, tmp_path)
        live = modes(tmp_path / "data")

    assert live == {False: {file_mode}, True: {directory_mode}}
    for part in ("data", "copy"):
        assert modes(tmp_path / part) == {False: {file_mode}, True: {directory_mode}}


def test_the_owner_alone_is_the_default(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data") as store:
        use(store, tmp_path)

    assert modes(tmp_path / "data") == {False: {0o600}, True: {0o700}}


def test_a_request_can_be_read_by_those_who_may_read_the_store(tmp_path: Path) -> None:
    with cordwood.open(tmp_path / "data", access="group"):
        pass

    cordwood.library.request_change(
        tmp_path / "data", CreateTopic(topic="t", partitions=1, config={})
    )

    assert modes(tmp_path / "data") == {False: {0o660}, True: {0o770}}


def test_unknown_access_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="owner, group, all"):
        cordwood.open(tmp_path, access="everybody")


def test_access_is_read_from_files_of_the_owner(tmp_path: Path) -> None:
    for mode, access in ((0o600, "owner"), (0o640, "group"), (0o664, "all")):
        for name in ("meta.properties", "partition.metadata"):
            (tmp_path / name).touch()
            (tmp_path / name).chmod(mode)
        assert FileAccess.of_store(str(tmp_path)) == access
        assert FileAccess.of_partition(str(tmp_path)) == access
    assert FileAccess.of_store(str(tmp_path / "missing")) == "owner"
