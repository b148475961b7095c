"""Transactions of real clients while brokers and clients are killed: a short form of the checker.

`script/faults transactions` is the long one. The judge has tests of its own
(`test_transaction_analysis.py`). Here it must also find bugs that are planted into a broker.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from crash.exactly_once.campaign import Plan, Role, run_campaign
from crash.exactly_once.history import SymptomError
from crash.exactly_once.plants import PLANTS
from crash.exactly_once.proxy import NONE, Mischief

pytestmark = pytest.mark.faults

A_WRITER, B_WRITER = Role(kind="confluent", name="a"), Role(kind="raw", name="b")
PROCESSOR = Role(kind="raw", name="c", processes=True)
TRIES = 6
QUICK = {"no reconciliation", "unsynced decision"}


def test_no_promise_is_broken_while_brokers_and_clients_are_killed(tmp_path: Path) -> None:
    plan = Plan(seed=1, transactions=250, kills=6, client_kills=4)

    report = run_campaign(plan, tmp_path / "run")

    assert not report.broken, f"{report}\n" + "\n".join(map(str, report.broken[:10]))
    assert report.broker_kills == 6
    assert report.committed
    assert report.aborted


def test_late_requests_of_version_2_reach_no_later_transaction(tmp_path: Path) -> None:
    roles = (B_WRITER, PROCESSOR)
    mischief = Mischief(delay=0, cut_before=0, cut_after=0.05, hold=0.1, repeat=0.3)
    plan = Plan(seed=1, transactions=60, kills=0, roles=roles, mischief=mischief)

    report = run_campaign(plan, tmp_path / "run")

    assert report.violations == []
    assert report.mischief["repeat"]


def test_the_known_hole_of_version_1_is_found_and_called_so(tmp_path: Path) -> None:
    """A repeated end ends the next transaction of the same epoch, in Kafka as well."""
    roles = (A_WRITER, Role(kind="confluent", name="d"))
    mischief = Mischief(delay=0, cut_before=0, cut_after=0, hold=0, repeat=0.4, late_s=(0, 0.05))
    found = []
    for seed in range(TRIES):
        plan = Plan(seed=seed, transactions=60, kills=0, roles=roles, mischief=mischief)
        report = run_campaign(plan, tmp_path / f"run-{seed}")
        assert not report.broken, "\n".join(map(str, report.broken[:10]))
        found += list(report.holes)
        if found:
            break

    assert set(found) & {"torn transaction", "early read", "aborted read"}


@pytest.mark.parametrize(
    "plant",
    [
        plant if plant in QUICK else pytest.param(plant, marks=pytest.mark.slow)
        for plant in sorted(PLANTS)
    ],
)
def test_a_planted_bug_is_found(tmp_path: Path, plant: str) -> None:
    roles = (A_WRITER, B_WRITER)
    if plant == "lost offsets":
        roles = (B_WRITER, PROCESSOR)
    for seed in range(TRIES):
        plan = Plan(
            seed=seed,
            transactions=40,
            kills=6,
            roles=roles,
            mischief=NONE,
            power_cuts=1.0,
            plant=plant,
        )
        try:
            report = run_campaign(plan, tmp_path / f"run-{seed}")
        except SymptomError:
            return
        if report.broken:
            return

    pytest.fail(f"{TRIES} runs did not find it")
