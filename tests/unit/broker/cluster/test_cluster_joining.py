"""What a member refuses before it joins."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.broker.cluster.cluster_joining import check_directories
from cordwood.broker.cluster.cluster_member import directory_ids
from cordwood.errors import ConfigError
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from fakes.simulated_fs import SimulatedFileSystem
from fakes.simulated_store import open_store


def formatted(directory: Path) -> str:
    directory.mkdir()
    (directory / "meta.properties").write_text("version=1\n")
    return str(directory)


def test_several_directories_are_accepted_if_all_are_formatted(tmp_path: Path) -> None:
    one, two = formatted(tmp_path / "one"), formatted(tmp_path / "two")
    new = tmp_path / "new"
    new.mkdir()

    check_directories([one, two])

    for unformatted in (str(new), str(tmp_path / "missing")):
        with pytest.raises(ConfigError, match="not formatted for a cluster") as refused:
            check_directories([one, unformatted])
        assert refused.value.value == unformatted


def test_a_directory_that_cannot_be_listed_is_offline_if_there_are_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    one = formatted(tmp_path / "one")
    broken = tmp_path / "broken"
    broken.write_text("")

    check_directories([one, str(broken)])

    assert f"{broken} is offline" in caplog.text
    with pytest.raises(ConfigError, match="cannot be read"):
        check_directories([str(broken)])


def test_copies_of_a_directory_are_refused() -> None:
    fs = SimulatedFileSystem()
    for path in ("/one", "/two"):
        fs.make_directory(path)
        text = b"version=1\nnode.id=1\ncluster.id=c\ndirectory.id=AAAAAAAAAAAAAAAAAAAAZQ\n"
        fs.create(f"{path}/meta.properties").write_at(0, text)
    with (
        open_store(fs, directories=("/one", "/two"), role=AMONG_OTHERS) as store,
        pytest.raises(ConfigError, match="one is a copy of the other"),
    ):
        directory_ids(store)
