"""The checker of transactions against a cluster, for a minute; `script/faults` runs for longer."""

from __future__ import annotations

from pathlib import Path

from crash.exactly_once.cluster_campaign import ClusterCampaign, cluster_plan
from interop.kafka_peer import KafkaTools


def test_transactions_of_a_cluster_are_exactly_once_while_brokers_are_killed(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    plan = cluster_plan(seed=7, transactions=150, kills=3, client_kills=2)

    report = ClusterCampaign(plan, tmp_path / "run", kafka).run()

    assert report.broken == []
    assert report.broker_kills == 3
    assert report.committed > 50
