"""The data directory of a broker of a cluster, as a target of commands."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID

import pytest

from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.store.cluster_mark import mark_cluster_directories
from cordwood.log.store.store import Store, StoreSetup
from cordwood.log.topics.topic_hosting import HostedTopic
from cordwood.quantities import LeaderEpoch
from cordwood.storage.files import RealFileSystem
from fakes.client_batches import client_batch
from fakes.command_line import CommandLine


@pytest.fixture
def member(cli: CommandLine, tmp_path: Path) -> Path:
    """It has two partitions of four of a topic: 0 is empty, 1 has five records."""
    path = tmp_path / "member"
    mark_cluster_directories(RealFileSystem(), [str(path)])
    with Store([str(path)], StoreSetup(role=AMONG_OTHERS)) as store:
        store.hosting.host(
            HostedTopic(name="orders", topic_id=UUID(int=5), partitions=4, here=frozenset({0, 1}))
        )
        log = store.topic("orders").partition(1)
        log.replica.lead(LeaderEpoch(1))
        for number in range(5):
            log.batches.append_batch(client_batch(b"%d" % number))
        log.sync()
        log.replica.raise_high_watermark(log.end_offset)
    cli.at = str(path)
    return path


def test_partitions_of_other_brokers_are_not_called_missing(cli: CommandLine, member: Path) -> None:
    text = cli("topics", "describe", "orders")
    [found] = cli("topics", "describe", "orders", "--json").objects

    assert text.code == 0
    assert "missing" not in text.out
    assert text.out.count("another broker") == 2
    assert [each["is_elsewhere"] for each in found["partitions"]] == [False, False, True, True]
    assert [each["problem"] for each in found["partitions"]] == [None] * 4
    assert found["partitions"][1]["records"] == 5


def test_a_partition_of_ours_without_files_is_missing(cli: CommandLine, member: Path) -> None:
    shutil.rmtree(member / "orders-0")

    [found] = cli("topics", "describe", "orders", "--json").objects

    problems = [each["problem"] for each in found["partitions"]]
    assert problems == ["its files are missing from the data directories", None, None, None]


@pytest.mark.parametrize(
    "words",
    [
        ["topics", "trim", "orders", "--before", "2", "--yes"],
        ["topics", "trim", "orders", "--before", "2", "--partition", "1", "--yes"],
        ["topics", "delete", "orders", "--yes"],
        ["topics", "alter", "orders", "-c", "retention.ms=1000"],
    ],
)
def test_changes_are_sent_to_the_brokers(cli: CommandLine, member: Path, words: list[str]) -> None:
    ran = cli(*words)

    assert ran.code == 2
    assert "belongs to a broker of a cluster" in ran.err
    assert "Pass --at HOST:PORT" in ran.err


@pytest.mark.parametrize("command", ["join", "format"])
def test_a_file_is_no_data_directory(cli: CommandLine, tmp_path: Path, command: str) -> None:
    file = tmp_path / "data"
    file.write_text("")
    place = ("--dir", str(file), "--node-id", "4")
    more = ("--cluster-id", "orders") if command == "format" else ("--at", "127.0.0.1:1")

    ran = cli("cluster", command, *place, *more)

    assert ran.code == 2
    assert str(file) in ran.err
    assert "directory" in ran.err
    assert file.read_text() == ""
