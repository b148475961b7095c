"""The suite of the cluster: its rows, where replicas go, and what a catch-up counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import SUITES
from bench.broker_servers import DISK, OS
from bench.cluster import row_makers
from bench.cluster_catch_up_rows import CatchUp, _watch
from bench.cluster_stage import ClusterStage, Side, assignment
from bench.measure import Context
from interop.kafka_peer import KafkaUnavailableError
from interop.local_cluster import planned


def test_the_suite_has_a_row_for_each_reach() -> None:
    assert "cluster" in SUITES
    for wanted in ("idle", "produce os", "produce disk", "catch-up", "failover"):
        assert wanted in row_makers()


def test_each_broker_leads_as_many_partitions_and_has_a_replica_of_all() -> None:
    assert assignment([1, 2, 3], 3) == [[1, 2, 3], [2, 1, 3], [3, 1, 2]]


def test_a_broker_that_will_be_stopped_leads_nothing() -> None:
    assert assignment([1, 2, 3], 3, last=3) == [[1, 2, 3], [2, 1, 3], [1, 2, 3]]


def test_a_side_is_named_by_what_its_acknowledgement_means(tmp_path: Path) -> None:
    nodes = tuple(planned(tmp_path, controllers=1, kafka=3, brokers=3).of("kafka"))
    side = Side(name="Kafka 4", nodes=nodes)

    assert side.ids == [100, 101, 102]
    assert side.label(OS) == "Kafka 4, default"
    assert side.label(DISK) == "Kafka 4, flush.messages=1"
    assert side.cpu_seconds() is None  # none of them runs


def test_a_catch_up_counts_what_came_since_the_follower_was_stopped(tmp_path: Path) -> None:
    (node,) = planned(tmp_path, controllers=1, kafka=0, brokers=1).of("broker")
    log = Path(node.data, "bench-1-0", "00000000000000000000.log")
    log.parent.mkdir(parents=True)
    other = Path(node.data, "bench-10-0", "00000000000000000000.log")
    other.parent.mkdir()
    sizes = iter((10, 40, 100))  # it had 10 when it was stopped

    def grow(_: float) -> None:
        log.write_bytes(bytes(next(sizes)))

    grow(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bench.cluster_catch_up_rows.time.sleep", grow)
        copied, seconds = _watch(node, "bench-1", 10, 100)

    assert copied == 90
    assert seconds > 0
    assert CatchUp(copied_bytes=60_000_000, copying_s=0.5, in_sync_s=1.0).mb_per_s == 120.0


def test_without_kafka_the_rows_are_skipped_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find() -> None:
        raise KafkaUnavailableError("no Maven")

    monkeypatch.setattr("bench.cluster_stage.find_kafka", find)
    said: list[str] = []
    context = Context(directory=tmp_path, is_quick=True, runs=1, say=said.append)

    rows = [make(context) for make in row_makers().values()]

    assert not any(rows)
    assert said[0].endswith("no Maven")
    assert ClusterStage().cold_sides(context) == []
