"""``cordwood cluster`` where there is no cluster: one broker, a directory, wrong words."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import cordwood
from cordwood.errors import BrokerUnreachableError
from cordwood.quantities import MIB
from cordwood.remote import remote_cluster
from cordwood.remote.remote_cluster import RemoteReplicas, RemoteTopic
from cordwood.remote.remote_operations import (
    Place,
    RemoteMove,
    RemoteOperations,
    RemotePartition,
)
from cordwood.remote.remote_throttles import RemoteThrottles
from cordwood.value_class import replace
from fakes.command_line import CommandLine

if TYPE_CHECKING:
    from cordwood.protocol.schemas import cluster_messages as messages


@pytest.fixture
def broker(cli: CommandLine, tmp_path: Path) -> Iterator[cordwood.Broker]:
    with cordwood.Broker(tmp_path / "data") as running:
        cli.at = running.bootstrap_servers
        yield running


def test_one_broker_is_a_healthy_cluster_without_controllers(
    cli: CommandLine, broker: cordwood.Broker
) -> None:
    broker.store.create_topic("orders", partitions=3)

    text = cli("cluster", "status")
    [found] = cli("cluster", "status", "--json").objects

    assert text.code == 0
    assert text.lines[0] == "Healthy: 1 broker alive, 3 partitions, all replicas in sync."
    assert found["is_healthy"]
    assert found["quorum"] is None
    assert found["brokers"][0]["kind"] == "cordwood"
    assert found["brokers"][0]["leaders"] == 3


def test_one_broker_has_nowhere_to_move_to(cli: CommandLine, broker: cordwood.Broker) -> None:
    broker.store.create_topic("orders")
    node = cli("cluster", "status", "--json").objects[0]["brokers"][0]["node_id"]

    drained = cli("cluster", "drain", str(node))
    removed = cli("cluster", "remove", str(node), "--yes")
    elected = cli("cluster", "elect")
    joined = cli("cluster", "join", "--dir", "new", "--node-id", "7")

    rebuilt = cli("cluster", "rebuild", "orders-0", "--broker", str(node), "--yes")

    assert rebuilt.code == 1
    assert "there is no other replica to copy from" in rebuilt.err
    assert drained.code == 1
    assert "orders-0 cannot leave broker" in drained.err
    assert removed.code == 1
    assert "has 1 replica (orders-0); move them first" in removed.err
    assert elected.code == 0
    assert "nothing to do" in elected.err
    assert joined.code == 1
    assert "is alone: it has no controllers" in joined.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["reassign"], "pass one of --to, --plan and --cancel"),
        (["reassign", "--to", "1"], "--to needs --topic"),
        (["reassign", "--to", "1", "--topic", "orders", "--cancel"], "pass one of"),
        (["reassign", "--cancel", "--remove-throttle"], "pass one of"),
        (["reassign", "--cancel", "--throttle", "1MiB"], "leave it out with --cancel"),
        (["reassign", "--remove-throttle", "--preserve-throttles"], "belongs to --cancel"),
        (["reassign", "--throttle", "fast"], "--throttle = fast: must be a whole number"),
        (["reassign", "--throttle", "0"], "must be at least 1 byte a second"),
        (["reassign", "--to", "1,x", "--topic", "orders"], "must be ids of brokers"),
        (["reassign", "--to", "1,1", "--topic", "orders"], "names a broker twice"),
        (["reassign", "--to", "77", "--topic", "orders"], "is not a broker of this cluster"),
        (["reassign", "--plan", "nowhere.json"], "nowhere.json: No such file"),
        (["reassign", "--cancel", "--topic", "bills"], "no topic named 'bills'"),
        (["drain", "77"], "is not a broker of this cluster"),
        (["elect", "--unclean"], "--unclean needs --topic"),
        (["rebuild", "orders", "--broker", "1"], "must be a topic and a partition"),
    ],
)
def test_wrong_words_are_refused_with_advice(
    cli: CommandLine, broker: cordwood.Broker, words: list[str], message: str
) -> None:
    broker.store.create_topic("orders")

    ran = cli("cluster", *words)

    assert ran.code != 0
    assert message in ran.err


def test_a_plan_for_a_partition_that_is_not_there_is_refused(
    cli: CommandLine, broker: cordwood.Broker
) -> None:
    broker.store.create_topic("orders")
    plan = Path("plan.json")

    def with_plan(topic: str, partition: int) -> str:
        wanted = {"topic": topic, "partition": partition, "replicas": [1]}
        plan.write_text(json.dumps({"version": 1, "partitions": [wanted]}))
        return cli("cluster", "reassign", "--plan", "plan.json").err

    assert "no topic named 'bills'" in with_plan("bills", 0)
    assert "orders" in with_plan("orders", 5)


def test_a_directory_is_not_a_cluster(cli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()

    ran = cli("cluster", "status", "--at", "data")

    assert ran.code == 2
    assert "a cluster is reached through a broker" in ran.err


@pytest.mark.parametrize(("count", "is_odd"), [(1, True), (2, False), (3, True)])
def test_an_even_number_of_controllers_is_warned_of(
    cli: CommandLine, *, count: int, is_odd: bool
) -> None:
    ran = cli.ok("cluster", "controllers", *(f"{number}@a{number}:9093" for number in range(count)))

    assert ("survive no more failures" in ran.err) != is_odd


def test_a_plan_that_cannot_be_read_is_named_by_its_file(
    cli: CommandLine, broker: cordwood.Broker
) -> None:
    Path("plan.json").write_text("{\n")

    said = cli("cluster", "reassign", "--plan", "plan.json")

    assert said.code != 0
    assert "--plan = plan.json: " in said.err
    assert "is not JSON" in said.err


def _with_replicas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broker is one of a cluster, and tells of replicas on others."""
    real = remote_cluster._described

    def described(topic: messages.MetadataResponseTopics) -> RemoteTopic | None:
        found = real(topic)
        assert found is not None
        leader = found.leaders[0]
        healthy = RemoteReplicas(all=(leader, 8, 9), in_sync=(leader, 8, 9), offline=())
        degraded = RemoteReplicas(all=(8, leader, 9), in_sync=(leader,), offline=(8, 9))
        lost = RemoteReplicas(all=(8,), in_sync=(8,), offline=(8,))
        return replace(
            found,
            leaders={0: leader, 1: leader, 2: -1},
            replicas={0: healthy, 1: degraded, 2: lost},
        )

    monkeypatch.setattr(remote_cluster, "_described", described)
    monkeypatch.setattr(RemoteOperations, "has_controllers", True)


def test_a_topic_of_a_cluster_is_described_with_its_replicas(
    cli: CommandLine, broker: cordwood.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.store.create_topic("orders", partitions=3)
    me = cli("cluster", "status", "--json").objects[0]["brokers"][0]["node_id"]
    _with_replicas(monkeypatch)

    lines = cli.ok("topics", "describe", "orders").lines
    [found] = cli.ok("topics", "describe", "orders", "--json").objects

    keys = ("leader", "replicas", "in_sync", "offline", "problem")
    assert [[each[key] for key in keys] for each in found["partitions"]] == [
        [me, [me, 8, 9], [me, 8, 9], [], None],
        [me, [8, me, 9], [me], [8, 9], None],
        [None, [8], [8], [8], "no leader"],
    ]
    [titles] = [line for line in lines if "leader" in line and "partition" in line]
    at = titles.index("leader")
    assert titles[at:].split() == ["leader", "replicas", "in", "sync", "offline", "problem"]
    assert lines[-2][at:].split()[0] == str(me)
    assert "8, 9" in lines[-2]


def test_a_topic_of_one_broker_is_described_without_replicas(
    cli: CommandLine, broker: cordwood.Broker
) -> None:
    broker.store.create_topic("orders")

    text = cli.ok("topics", "describe", "orders").out
    [found] = cli.ok("topics", "describe", "orders", "--json").objects

    assert "in sync" not in text
    assert "leader" not in found["partitions"][0]


class Throttles:
    """The limits that a command sets and removes; broker 9 is away."""

    away = 9

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rates: dict[int, int | None] = {}
        self.lists: dict[str, tuple[str | None, str | None]] = {}
        monkeypatch.setattr(RemoteThrottles, "limit_broker", lambda _, *given: self._limit(*given))
        monkeypatch.setattr(RemoteThrottles, "list_replicas", lambda _, *given: self._list(*given))
        monkeypatch.setattr(RemoteThrottles, "listed_topics", lambda _, topics: self._of(topics))

    def _limit(self, node_id: int, rate: int | None) -> None:
        if node_id == self.away:
            raise BrokerUnreachableError(f"broker:{node_id}", "it is away")
        self.rates[node_id] = rate

    def _list(self, topic: str, senders: str | None, receivers: str | None) -> None:
        self.lists[topic] = senders, receivers

    def _of(self, topics: Iterable[str]) -> list[str]:
        return sorted(name for name in topics if any(self.lists.get(name, ())))


@pytest.fixture
def moving(broker: cordwood.Broker, monkeypatch: pytest.MonkeyPatch) -> dict[Place, RemoteMove]:
    """Reassignments under way, as the controllers tell them."""
    broker.store.create_topic("orders", partitions=2)
    found = {("orders", 1): RemoteMove(adding=(1, 8), removing=())}
    parts = [
        RemotePartition(topic="orders", partition=0, leader=1, replicas=(1,), in_sync=(1,)),
        RemotePartition(topic="orders", partition=1, leader=9, replicas=(9, 1, 8), in_sync=(9,)),
        RemotePartition(topic="bills", partition=0, leader=1, replicas=(1,), in_sync=(1,)),
    ]

    def reassign(_: RemoteOperations, wanted: Mapping[Place, object]) -> dict[Place, str]:
        for place in wanted:
            found.pop(place)
        return {}

    monkeypatch.setattr(RemoteOperations, "moves", lambda _, **_limits: found)
    monkeypatch.setattr(RemoteOperations, "partitions", lambda _, _topics=None: parts)
    monkeypatch.setattr(RemoteOperations, "reassign", reassign)
    return found


def test_a_limit_alone_is_for_what_is_under_way(
    cli: CommandLine, moving: dict[Place, RemoteMove], monkeypatch: pytest.MonkeyPatch
) -> None:
    throttles = Throttles(monkeypatch)

    planned = cli.ok("cluster", "reassign", "--throttle", "2MiB", "--dry-run")
    was_set = bool(throttles.rates or throttles.lists)
    done = cli.ok("cluster", "reassign", "--throttle", "2MiB")

    assert not was_set
    assert "would limit copies to 2.0 MiB/s on each of the brokers 1, 8, 9" in planned.err
    assert throttles.rates == {1: 2 * MIB, 8: 2 * MIB}
    assert throttles.lists == {"orders": ("1:9", "1:1,1:8")}
    assert "broker 9 gets no limit" in done.err


def test_limits_are_removed_only_when_nothing_moves(
    cli: CommandLine, moving: dict[Place, RemoteMove], monkeypatch: pytest.MonkeyPatch
) -> None:
    throttles = Throttles(monkeypatch)
    cli.ok("cluster", "reassign", "--throttle", "2MiB")

    early = cli("cluster", "reassign", "--remove-throttle")
    still = dict(throttles.lists)
    moving.clear()
    done = cli("cluster", "reassign", "--remove-throttle")

    assert early.code == 1
    assert "1 partition still move" in early.err
    assert still == {"orders": ("1:9", "1:1,1:8")}
    assert throttles.lists == {"orders": (None, None)}
    assert throttles.rates[1] is None
    assert done.code == 0
    assert "removed the limits" in done.err


def test_cancelling_removes_the_limits(
    cli: CommandLine, moving: dict[Place, RemoteMove], monkeypatch: pytest.MonkeyPatch
) -> None:
    throttles = Throttles(monkeypatch)
    throttles.rates[1], throttles.lists["orders"] = 2 * MIB, ("1:1", "1:8")

    planned = cli.ok("cluster", "reassign", "--cancel", "--dry-run")
    was_set = (dict(throttles.rates), dict(throttles.lists), dict(moving))
    done = cli.ok("cluster", "reassign", "--cancel")

    assert "would cancel 1 reassignment" in planned.err
    assert "would remove the limits for copies of orders" in planned.err
    assert was_set[:2] == ({1: 2 * MIB}, {"orders": ("1:1", "1:8")})
    assert was_set[2]
    assert not moving
    assert throttles.rates == {1: None}
    assert throttles.lists == {"orders": (None, None)}
    assert "cancelled 1 reassignment" in done.err
    assert "removed the limits for copies of orders" in done.err


def test_limits_that_an_earlier_cancellation_left_are_removed_by_the_next_one(
    cli: CommandLine, moving: dict[Place, RemoteMove], monkeypatch: pytest.MonkeyPatch
) -> None:
    throttles = Throttles(monkeypatch)
    throttles.rates[1], throttles.lists["orders"] = 2 * MIB, ("1:1", "1:8")

    kept = cli.ok("cluster", "reassign", "--cancel", "--preserve-throttles")
    still = (dict(throttles.rates), dict(throttles.lists))
    done = cli.ok("cluster", "reassign", "--cancel")

    assert "cancelled 1 reassignment" in kept.err
    assert "limits" not in kept.err
    assert still == ({1: 2 * MIB}, {"orders": ("1:1", "1:8")})
    assert "nothing is under way" in done.err
    assert throttles.rates == {1: None}
    assert throttles.lists == {"orders": (None, None)}


def test_cancelling_one_topic_leaves_the_limits_of_brokers_to_those_that_still_move(
    cli: CommandLine, moving: dict[Place, RemoteMove], monkeypatch: pytest.MonkeyPatch
) -> None:
    throttles = Throttles(monkeypatch)
    throttles.rates[1] = 2 * MIB
    throttles.lists.update({"orders": ("1:1", "1:8"), "bills": ("0:1", "0:8")})
    moving["bills", 0] = RemoteMove(adding=(8,), removing=())

    first = cli.ok("cluster", "reassign", "--cancel", "--topic", "orders")
    between = (dict(throttles.rates), dict(throttles.lists))
    cli.ok("cluster", "reassign", "--cancel", "--topic", "bills")

    assert "the brokers keep their limit for 1 other partition under way" in first.err
    assert between == ({1: 2 * MIB}, {"orders": (None, None), "bills": ("0:1", "0:8")})
    assert throttles.rates == {1: None}
    assert throttles.lists == {"orders": (None, None), "bills": (None, None)}


def test_limits_stay_if_a_reassignment_cannot_be_cancelled(
    cli: CommandLine, moving: dict[Place, RemoteMove], monkeypatch: pytest.MonkeyPatch
) -> None:
    throttles = Throttles(monkeypatch)
    throttles.lists["orders"] = "1:1", "1:8"
    monkeypatch.setattr(RemoteOperations, "reassign", lambda _, wanted: dict.fromkeys(wanted, "no"))

    ran = cli("cluster", "reassign", "--cancel")

    assert ran.code == 1
    assert "orders-1 was refused: no" in ran.err
    assert throttles.lists == {"orders": ("1:1", "1:8")}


@pytest.mark.parametrize(("listed", "code"), [("1:1", 1), (None, 0)])
def test_a_broker_that_is_away_matters_to_a_cancellation_only_if_there_are_limits(
    cli: CommandLine,
    moving: dict[Place, RemoteMove],
    monkeypatch: pytest.MonkeyPatch,
    listed: str | None,
    code: int,
) -> None:
    throttles = Throttles(monkeypatch)
    throttles.away = 1
    throttles.lists["orders"] = listed, listed

    ran = cli("cluster", "reassign", "--cancel")

    assert ran.code == code
    assert ("broker 1 keeps its limit" in ran.err) == bool(listed)
    assert "cancelled 1 reassignment" in ran.err
    assert throttles.lists == {"orders": (None, None)}
