"""``cordwood cluster`` where somebody does not answer: controllers, or the reader of the output."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

import cordwood
from cordwood.cli.at import cluster_access
from cordwood.cli.at.cluster_access import open_cluster
from cordwood.cli.cluster.moves import carry_out, show_moves
from cordwood.cli.terminal import say
from cordwood.cluster.operating.cluster_picture import Place
from cordwood.cluster.operating.reassignment import PlannedMove
from cordwood.errors import BrokerError, BrokerRefusedError, BrokerUnreachableError
from cordwood.remote.remote_operations import RemoteMove, RemoteOperations
from fakes.command_line import CommandLine

MOVES = [
    PlannedMove(place=Place("orders", number), before=(1, 2), after=(2, 3), size_bytes=1)
    for number in range(5_000)  # more than a pipe and a buffer take
]


@pytest.fixture
def broker(cli: CommandLine, tmp_path: Path) -> Iterator[cordwood.Broker]:
    with cordwood.Broker(tmp_path / "data", topics={"orders": 3}) as running:
        cli.at = running.bootstrap_servers
        yield running


@pytest.mark.parametrize("as_json", [False, True])
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
@pytest.mark.parametrize("count", [1, len(MOVES)])
def test_moves_begin_although_nobody_reads_the_plan_any_more(
    broker: cordwood.Broker,
    monkeypatch: pytest.MonkeyPatch,
    *,
    as_json: bool,
    closed: str,
    count: int,
) -> None:
    begun: list[Place] = []

    def reassign(
        _: RemoteOperations, wanted: Mapping[Place, Sequence[int] | None]
    ) -> dict[Place, str]:
        begun.extend(wanted)
        return {}

    monkeypatch.setattr(RemoteOperations, "reassign", reassign)
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w", encoding="utf-8") as unread:
        monkeypatch.setattr(sys, closed, unread)
        with open_cluster(broker.bootstrap_servers) as access:
            show_moves(MOVES[:count], as_json=as_json)
            carry_out(access, MOVES[:count], waits=False, timeout_s=None)
            say("a message that nobody reads")
        monkeypatch.undo()

    assert len(begun) == count


class AbsentControllers:
    """The controllers behind a broker, which fail as `error` says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: BrokerError) -> None:
        self._error = error
        self.limits_s: list[float | None] = []
        monkeypatch.setattr(RemoteOperations, "has_controllers", True)
        monkeypatch.setattr(RemoteOperations, "moves", lambda _, **limits: self._moves(**limits))

    def _moves(self, *, timeout_s: float | None = None) -> dict[Place, RemoteMove]:
        self.limits_s.append(timeout_s)
        raise self._error


TIMED_OUT = BrokerUnreachableError("a:1", "no answer to ListPartitionReassignments in 5 s")


@pytest.mark.parametrize(
    "error", [TIMED_OUT, BrokerRefusedError("list reassignments", "request_timed_out")]
)
def test_the_status_says_that_the_controllers_do_not_answer_and_all_else(
    cli: CommandLine, broker: cordwood.Broker, monkeypatch: pytest.MonkeyPatch, error: BrokerError
) -> None:
    absent = AbsentControllers(monkeypatch, error)

    text = cli("cluster", "status")
    shown = cli("cluster", "status", "--json")

    assert text.code == shown.code == 1
    assert text.lines[0].startswith("Not healthy: the controllers do not answer (")
    assert "no broker answers" not in text.out + text.err
    assert "partitions: 3 in all, 0 offline" in text.out
    [found] = shown.objects
    assert not found["is_healthy"]
    assert found["quorum"] is None
    assert found["partitions"] == 3
    assert found["brokers"][0]["kind"] == "cordwood"
    assert absent.limits_s == [cluster_access.CONTROLLERS_ANSWER_S] * 2


def test_a_change_is_not_planned_without_the_controllers(
    cli: CommandLine, broker: cordwood.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    AbsentControllers(monkeypatch, TIMED_OUT)

    drained = cli("cluster", "drain", "1")

    assert drained.code == 1
    assert "no answer to ListPartitionReassignments" in drained.err


def test_who_may_not_see_moves_is_told_so(
    cli: CommandLine, broker: cordwood.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden = BrokerRefusedError("list reassignments", "cluster_authorization_failed")
    AbsentControllers(monkeypatch, forbidden)

    shown = cli("cluster", "status")

    assert shown.code == 1
    assert "cluster_authorization_failed" in shown.err
    assert "controllers do not answer" not in shown.out
