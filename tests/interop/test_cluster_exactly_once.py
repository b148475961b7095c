"""The checker of transactions against a cluster, for a minute; `script/faults` runs for longer."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from crash.exactly_once.cluster_campaign import ClusterCampaign, cluster_plan
from interop.kafka_peer import KafkaTools

TRIES = 6


def test_transactions_of_a_cluster_are_exactly_once_while_brokers_are_killed(
    kafka: KafkaTools, tmp_path: Path
) -> None:
    plan = cluster_plan(seed=7, transactions=150, kills=3, client_kills=2)

    report = ClusterCampaign(plan, tmp_path / "run", kafka).run()

    assert report.broken == []
    assert report.broker_kills == 3
    assert report.committed > 50


@pytest.mark.slow
@pytest.mark.parametrize(("plant", "kills"), [("forgotten decision", 5), ("markers only here", 1)])
def test_the_checker_finds_bugs_that_are_planted_into_all_brokers(
    kafka: KafkaTools, tmp_path: Path, plant: str, kills: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill has to fall into the right moment, so it tries several times."""
    tests = Path(__file__).parents[1]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([f"{tests.parent}/src", str(tests)]))
    for seed in range(7, 7 + TRIES):
        plan = cluster_plan(seed=seed, transactions=60, kills=kills, client_kills=0, plant=plant)

        report = ClusterCampaign(plan, tmp_path / f"run-{seed}", kafka).run()

        if "hanging" in {violation.kind for violation in report.broken}:
            return

    pytest.fail(f"{TRIES} runs did not find it")
