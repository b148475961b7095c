"""Several logs are synced at once, whoever else syncs them."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import cordwood
from cordwood.log.partition.partition_log import PartitionLog
from cordwood.log.transactions.log_syncs import LogSyncs
from cordwood.quantities import Offset
from cordwood.storage.disk.kernel_syncs import KernelSyncs
from fakes.client_batches import client_batch
from fakes.scarcity import refuse_descriptors, refuse_threads


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[list[PartitionLog]]:
    with cordwood.open(tmp_path / "data") as store:
        yield list(store.create_topic("t", partitions=5).partitions)


def append_unsynced(logs: list[PartitionLog]) -> dict[PartitionLog, Offset]:
    ends: dict[PartitionLog, Offset] = {}
    for log in logs:
        placed = log.batches.append_batch(client_batch(b"x"), wait=False)
        ends[log] = Offset(placed.last_offset + 1)
    return ends


@pytest.mark.parametrize("by", ["kernel", "threads"])
def test_all_logs_are_durable_afterwards(
    logs: list[PartitionLog], by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if by == "threads":
        monkeypatch.setattr(KernelSyncs, "open", lambda: None)
    syncs = LogSyncs()
    for _ in range(3):
        ends = append_unsynced(logs)

        assert syncs.await_kept(ends) == {}

        assert [log.state.durable for log in logs] == list(ends.values())
    syncs.close()
    syncs.close()


def test_a_log_that_somebody_else_syncs_is_waited_for(logs: list[PartitionLog]) -> None:
    append_unsynced(logs)
    LogSyncs().await_kept({log: log.end_offset for log in logs})  # settled: one file each
    ends = append_unsynced(logs)
    other = logs[2].syncing.begin()
    assert other is not None
    other.finish(other.wait())

    assert LogSyncs().await_kept(ends) == {}

    assert all(log.state.durable == end for log, end in ends.items())


def test_a_log_that_fails_is_named_and_the_others_are_synced(logs: list[PartitionLog]) -> None:
    ends = append_unsynced(logs)
    logs[1].close()

    failures = LogSyncs().await_kept({**ends, logs[1]: Offset(ends[logs[1]] + 1)})

    assert list(failures) == [logs[1]]
    assert all(log.state.durable == ends[log] for log in logs if log is not logs[1])


@pytest.mark.parametrize("given", [0, 1])
def test_logs_are_synced_if_the_system_has_no_descriptor_and_no_thread_to_give(
    logs: list[PartitionLog], given: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    append_unsynced(logs)
    LogSyncs().await_kept({log: log.end_offset for log in logs})  # settled: one file each
    ends = append_unsynced(logs)
    refuse_descriptors(monkeypatch)
    refuse_threads(monkeypatch, given=given)

    assert LogSyncs().await_kept(ends) == {}

    assert all(log.state.durable == end for log, end in ends.items())
