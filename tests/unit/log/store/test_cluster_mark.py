"""Directories of a broker in a cluster: nobody else writes to them."""

from pathlib import Path

import pytest

import cordwood
from cordwood.errors import ReplicatedLogError, StorageError
from cordwood.library import open_writer
from cordwood.log.partition.state.replica_role import AMONG_OTHERS
from cordwood.log.rules.topic_config import TopicConfig
from cordwood.quantities import LeaderEpoch


def test_a_directory_of_a_cluster_is_written_by_its_broker_alone(tmp_path: Path) -> None:
    with open_writer([str(tmp_path)], defaults=TopicConfig(), role=AMONG_OTHERS):
        pass

    with pytest.raises(StorageError, match="belongs to a broker of a cluster"):
        cordwood.open(tmp_path)
    with cordwood.open(tmp_path, read_only=True) as store:
        assert store.topics() == []
    (tmp_path / "cluster-member").unlink()
    with cordwood.open(tmp_path) as store:
        assert store.topics() == []


def test_what_only_one_replica_would_get_is_refused(tmp_path: Path) -> None:
    with open_writer([str(tmp_path)], defaults=TopicConfig(), role=AMONG_OTHERS) as store:
        topic = store.create_topic("orders")
        log = topic.partition(0)
        log.replica.lead(LeaderEpoch(1))

        with pytest.raises(ReplicatedLogError, match="publish"):
            store.publish("job", 1, {("orders", 0): [(None, b"x")]})
        with pytest.raises(ReplicatedLogError, match="truncate"):
            log.truncation.truncate_to(0)


def test_a_directory_that_cannot_be_marked_stays_offline_if_there_are_others(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    good, bad = tmp_path / "good", tmp_path / "bad"
    bad.write_text("no directory")

    with open_writer([str(bad), str(good)], defaults=TopicConfig(), role=AMONG_OTHERS) as store:
        assert store.directories.paths == [str(good)]
        assert not store.directories.are_all_usable

    assert f"{bad} cannot be marked" in caplog.text
    with pytest.raises(OSError, match="File exists"):
        open_writer([str(bad)], defaults=TopicConfig(), role=AMONG_OTHERS)


def test_a_member_does_not_take_a_directory_with_topics_of_a_broker_that_was_alone(
    tmp_path: Path,
) -> None:
    with cordwood.open(tmp_path) as store:
        store.create_topic("precious").append(b"acknowledged")

    with pytest.raises(StorageError, match=r"records of a broker that was alone \(precious-0"):
        open_writer([str(tmp_path)], defaults=TopicConfig(), role=AMONG_OTHERS)

    with cordwood.open(tmp_path) as store:
        assert [record.value for record in store.topic("precious").read()] == [b"acknowledged"]
