"""Directories of a broker that is to join a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from cordwood.clock import SystemClock
from cordwood.errors import ConfigError
from cordwood.format.small_files.meta_properties import parse_meta_properties
from cordwood.log.topics.directory_format import FormattedDirectory, format_directories
from cordwood.storage.files import RealFileSystem


def formatted(*paths: Path, node_id: int = 4, cluster_id: str = "abc") -> list[FormattedDirectory]:
    return format_directories(
        RealFileSystem(),
        [str(path) for path in paths],
        node_id=node_id,
        cluster_id=cluster_id,
        clock=SystemClock(),
    )


def test_each_directory_gets_an_id_of_its_own(tmp_path: Path) -> None:
    one, two = formatted(tmp_path / "one", tmp_path / "two")

    meta = parse_meta_properties((tmp_path / "one" / "meta.properties").read_text())
    assert (meta.node_id, meta.cluster_id) == (4, "abc")
    assert meta.directory_id == one.directory_id != two.directory_id


def test_it_can_be_repeated(tmp_path: Path) -> None:
    (first,) = formatted(tmp_path / "one")

    (again,) = formatted(tmp_path / "one")

    assert again.directory_id == first.directory_id
    assert not again.is_new


@pytest.mark.parametrize(("node_id", "cluster_id"), [(5, "abc"), (4, "other")])
def test_a_directory_of_another_node_or_cluster_is_refused_and_none_is_formatted(
    tmp_path: Path, node_id: int, cluster_id: str
) -> None:
    formatted(tmp_path / "one")

    with pytest.raises(ConfigError, match="node 4 of cluster abc"):
        formatted(tmp_path / "new", tmp_path / "one", node_id=node_id, cluster_id=cluster_id)

    assert not (tmp_path / "new").exists()


def test_partitions_without_an_identity_are_refused(tmp_path: Path) -> None:
    (tmp_path / "orders-0").mkdir()

    with pytest.raises(ConfigError, match="orders-0"):
        formatted(tmp_path)
